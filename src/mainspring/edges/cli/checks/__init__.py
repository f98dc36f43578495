"""What `mainspring doctor` looks at."""
