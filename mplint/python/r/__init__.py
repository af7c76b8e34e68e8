"""R programs (.R, .Rmd, .qmd) as programs of the same form as Python's: one syntax tree, at the places of the R text."""
