"""Published runs beside what is predicted for them: the data, the rules that make scenarios of rows, and errors."""
