"""Read and write suites and results in the formats of other tools, one module for each format."""
