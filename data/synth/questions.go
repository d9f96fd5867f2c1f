package synth

// question is one question template: a form of SQL and its paraphrases.
//
// Slots: {T} {E} {e} the table, its rows' plural and singular; {A} {B} {F}
// columns of any type; {C} {D} text columns with values {c} {c2} of C and {d} of
// D; {p} the first letters of {c}; {N} {M} numeric columns with values {n} of N
// and {m} of M, and {lo} < {hi} of N; {Y} a date column with {y} < {y2}; {k} a
// small count; and of the parent table {P} {Q} {q}, {pA} any, {pC} {pc} text
// and its value, {pN} {pn} numeric. In a question a column is its name in
// words; in SQL its identifier.
type question struct {
	sql   string
	asked []string
}

// Each slot stands for a column or value that the question names, so that the
// SQL follows from the question and the table alone.
var trainQuestions = []question{
	{`SELECT {A} FROM {T}`, []string{
		"List the {A} of all {E}.", "Show the {A} for every {e}.", "What is the {A} of each {e}?", "Give me the {A} of all {E}."}},
	{`SELECT {A}, {B} FROM {T}`, []string{
		"List the {A} and {B} of all {E}.", "Show the {A} and the {B} for every {e}.", "What are the {A} and {B} of each {e}?", "Give the {A} together with the {B} of all {E}."}},
	{`SELECT {A}, {B}, {F} FROM {T}`, []string{
		"List the {A}, {B} and {F} of all {E}.", "Show {A}, {B} and {F} for every {e}.", "What are the {A}, {B} and {F} of each {e}?"}},
	{`SELECT {A} FROM {T} WHERE {C} = "{c}"`, []string{
		"What is the {A} of {E} whose {C} is {c}?", "List the {A} of {E} with {C} {c}.", "Show the {A} for every {e} whose {C} is {c}.", "Which {A} belongs to the {e} with {C} {c}?"}},
	{`SELECT {A}, {B} FROM {T} WHERE {C} = "{c}"`, []string{
		"What are the {A} and {B} of {E} whose {C} is {c}?", "List the {A} and {B} of {E} with {C} {c}.", "Show the {A} and the {B} for every {e} whose {C} is {c}."}},
	{`SELECT * FROM {T} WHERE {C} = "{c}"`, []string{
		"Show everything about {E} whose {C} is {c}.", "List all details of {E} with {C} {c}.", "Give all columns of {E} whose {C} is {c}."}},
	{`SELECT {A} FROM {T} WHERE {N} > {n}`, []string{
		"List the {A} of {E} with a {N} above {n}.", "Show the {A} of {E} whose {N} is greater than {n}.", "Which {A} belongs to {E} with {N} over {n}?", "What is the {A} of {E} with more than {n} {N}?"}},
	{`SELECT {A} FROM {T} WHERE {N} < {n}`, []string{
		"List the {A} of {E} with a {N} below {n}.", "Show the {A} of {E} whose {N} is less than {n}.", "Which {A} belongs to {E} with {N} under {n}?", "What is the {A} of {E} with less than {n} {N}?"}},
	{`SELECT {A} FROM {T} WHERE {N} >= {n}`, []string{
		"List the {A} of {E} with a {N} of at least {n}.", "Show the {A} of {E} whose {N} is at least {n}.", "What is the {A} of {E} with {n} or more {N}?"}},
	{`SELECT {A} FROM {T} WHERE {N} <= {n}`, []string{
		"List the {A} of {E} with a {N} of at most {n}.", "Show the {A} of {E} whose {N} is at most {n}.", "What is the {A} of {E} with {n} or less {N}?"}},
	{`SELECT {A} FROM {T} WHERE {N} = {n}`, []string{
		"List the {A} of {E} whose {N} is exactly {n}.", "Show the {A} of {E} whose {N} equals {n}.", "Which {A} belongs to {E} with a {N} of {n}?"}},
	{`SELECT {A} FROM {T} WHERE {N} BETWEEN {lo} AND {hi}`, []string{
		"List the {A} of {E} with a {N} between {lo} and {hi}.", "Show the {A} of {E} whose {N} is between {lo} and {hi}.", "Which {A} belongs to {E} with {N} from {lo} to {hi}?"}},
	{`SELECT {A} FROM {T} WHERE {Y} > "{y}"`, []string{
		"List the {A} of {E} with a {Y} after {y}.", "Show the {A} of {E} whose {Y} is after {y}.", "Which {A} belongs to {E} with {Y} later than {y}?"}},
	{`SELECT {A} FROM {T} WHERE {Y} < "{y}"`, []string{
		"List the {A} of {E} with a {Y} before {y}.", "Show the {A} of {E} whose {Y} is before {y}.", "Which {A} belongs to {E} with {Y} earlier than {y}?"}},
	{`SELECT COUNT(*) FROM {T} WHERE {Y} BETWEEN "{y}" AND "{y2}"`, []string{
		"How many {E} have a {Y} between {y} and {y2}?", "Count the {E} whose {Y} is between {y} and {y2}."}},
	{`SELECT {A} FROM {T} WHERE {C} LIKE "{p}%"`, []string{
		"List the {A} of {E} whose {C} starts with {p}.", "Show the {A} of {E} with a {C} beginning with {p}.", "Which {A} belongs to {E} whose {C} begins with {p}?"}},
	{`SELECT {A} FROM {T} WHERE {C} LIKE "%{p}%"`, []string{
		"List the {A} of {E} whose {C} contains {p}.", "Show the {A} of {E} with {p} in their {C}.", "Which {A} belongs to {E} whose {C} includes {p}?"}},
	{`SELECT {A} FROM {T} WHERE {C} = "{c}" AND {N} > {n}`, []string{
		"List the {A} of {E} whose {C} is {c} and whose {N} is above {n}.", "Show the {A} of {E} with {C} {c} and {N} greater than {n}.", "Which {A} belongs to {E} with {C} {c} and more than {n} {N}?"}},
	{`SELECT {A} FROM {T} WHERE {C} = "{c}" AND {D} = "{d}"`, []string{
		"List the {A} of {E} whose {C} is {c} and whose {D} is {d}.", "Show the {A} of {E} with {C} {c} and {D} {d}.", "What is the {A} of the {e} with {C} {c} and {D} {d}?"}},
	{`SELECT {A} FROM {T} WHERE {N} > {n} AND {M} < {m}`, []string{
		"List the {A} of {E} whose {N} is above {n} and whose {M} is below {m}.", "Show the {A} of {E} with {N} greater than {n} and {M} less than {m}."}},
	{`SELECT {A} FROM {T} WHERE {C} = "{c}" OR {C} = "{c2}"`, []string{
		"List the {A} of {E} whose {C} is either {c} or {c2}.", "Show the {A} of {E} with {C} {c} or {C} {c2}."}},
	{`SELECT {A} FROM {T} WHERE {C} != "{c}"`, []string{
		"List the {A} of {E} whose {C} is not {c}.", "Show the {A} of {E} with a {C} other than {c}.", "Which {A} belongs to {E} whose {C} is different from {c}?"}},
	{`SELECT COUNT(*) FROM {T}`, []string{
		"How many {E} are there?", "Count all {E} in the {T} table.", "What is the number of {E}?", "Give the total count of {E}."}},
	{`SELECT COUNT(*) FROM {T} WHERE {C} = "{c}"`, []string{
		"How many {E} have {C} {c}?", "Count the {E} whose {C} is {c}.", "What is the number of {E} with {C} {c}?"}},
	{`SELECT COUNT(*) FROM {T} WHERE {N} > {n}`, []string{
		"How many {E} have a {N} above {n}?", "Count the {E} whose {N} is greater than {n}.", "What is the number of {E} with {N} over {n}?"}},
	{`SELECT COUNT(DISTINCT {C}) FROM {T}`, []string{
		"How many different {C} values are there among the {E}?", "Count the distinct {C} of all {E}.", "What is the number of different {C} of the {E}?"}},
	{`SELECT DISTINCT {C} FROM {T}`, []string{
		"List the different {C} of all {E}.", "Show each distinct {C} of the {E}.", "What are the different {C} values of the {E}?"}},
	{`SELECT AVG({N}) FROM {T}`, []string{
		"What is the average {N} of all {E}?", "Compute the mean {N} over all {E}.", "Give the average {N} of the {E}."}},
	{`SELECT SUM({N}) FROM {T}`, []string{
		"What is the total {N} of all {E}?", "Compute the sum of {N} over all {E}.", "Give the total {N} of the {E}."}},
	{`SELECT MAX({N}) FROM {T}`, []string{
		"What is the highest {N} of all {E}?", "Find the maximum {N} among the {E}.", "Give the largest {N} of the {E}."}},
	{`SELECT MIN({N}) FROM {T}`, []string{
		"What is the lowest {N} of all {E}?", "Find the minimum {N} among the {E}.", "Give the smallest {N} of the {E}."}},
	{`SELECT MIN({N}), MAX({N}) FROM {T}`, []string{
		"What are the lowest and highest {N} of all {E}?", "Find the minimum and maximum {N} among the {E}."}},
	{`SELECT AVG({N}) FROM {T} WHERE {C} = "{c}"`, []string{
		"What is the average {N} of {E} whose {C} is {c}?", "Compute the mean {N} of {E} with {C} {c}.", "Give the average {N} for {E} with {C} {c}."}},
	{`SELECT SUM({N}) FROM {T} WHERE {C} = "{c}"`, []string{
		"What is the total {N} of {E} whose {C} is {c}?", "Compute the sum of {N} for {E} with {C} {c}.", "Give the total {N} of {E} with {C} {c}."}},
	{`SELECT MIN({N}) FROM {T} WHERE {C} = "{c}"`, []string{
		"What is the lowest {N} of {E} whose {C} is {c}?", "Find the minimum {N} among {E} with {C} {c}."}},
	{`SELECT {A} FROM {T} ORDER BY {N} ASC`, []string{
		"List the {A} of all {E} from lowest to highest {N}.", "Show the {A} of all {E} sorted by {N} in ascending order.", "Give the {A} of the {E} ordered by increasing {N}."}},
	{`SELECT {A} FROM {T} ORDER BY {N} DESC`, []string{
		"List the {A} of all {E} from highest to lowest {N}.", "Show the {A} of all {E} sorted by {N} in descending order.", "Give the {A} of the {E} ordered by decreasing {N}."}},
	{`SELECT {A} FROM {T} ORDER BY {N} DESC LIMIT 1`, []string{
		"Which {A} belongs to the {e} with the highest {N}?", "What is the {A} of the {e} with the largest {N}?", "Find the {A} of the {e} with the most {N}."}},
	{`SELECT {A} FROM {T} ORDER BY {N} ASC LIMIT 1`, []string{
		"Which {A} belongs to the {e} with the lowest {N}?", "What is the {A} of the {e} with the smallest {N}?", "Find the {A} of the {e} with the least {N}."}},
	{`SELECT {A} FROM {T} ORDER BY {N} DESC LIMIT {k}`, []string{
		"List the {A} of the {k} {E} with the highest {N}.", "Show the {A} of the top {k} {E} by {N}.", "What is the {A} of the {k} {E} with the largest {N}?"}},
	{`SELECT {C}, COUNT(*) FROM {T} GROUP BY {C}`, []string{
		"How many {E} are there for each {C}?", "Count the {E} of each {C}.", "Show every {C} with its number of {E}."}},
	{`SELECT {C}, AVG({N}) FROM {T} GROUP BY {C}`, []string{
		"What is the average {N} of {E} for each {C}?", "Show the mean {N} of the {E} of each {C}.", "Give the average {N} per {C}."}},
	{`SELECT {C}, SUM({N}) FROM {T} GROUP BY {C}`, []string{
		"What is the total {N} of {E} for each {C}?", "Show the sum of {N} of the {E} of each {C}.", "Give the total {N} per {C}."}},
	{`SELECT {C}, MIN({N}) FROM {T} GROUP BY {C}`, []string{
		"What is the lowest {N} of {E} for each {C}?", "Show the minimum {N} of the {E} of each {C}.", "Give the smallest {N} per {C}."}},
	{`SELECT {C} FROM {T} GROUP BY {C} HAVING COUNT(*) > {k}`, []string{
		"Which {C} has more than {k} {E}?", "List each {C} shared by more than {k} {E}.", "Show every {C} with more than {k} {E}."}},
	{`SELECT {C} FROM {T} GROUP BY {C} HAVING AVG({N}) > {n}`, []string{
		"Which {C} has an average {N} above {n}?", "List each {C} whose average {N} is greater than {n}.", "Show every {C} with a mean {N} over {n}."}},
	{`SELECT {C} FROM {T} GROUP BY {C} ORDER BY COUNT(*) DESC LIMIT 1`, []string{
		"Which {C} is the most common among the {E}?", "What is the most frequent {C} of the {E}?", "Find the {C} with the most {E}."}},
	{`SELECT {A} FROM {T} WHERE {N} > (SELECT AVG({N}) FROM {T})`, []string{
		"List the {A} of {E} whose {N} is above the average.", "Show the {A} of {E} with an above average {N}.", "Which {A} belongs to {E} with a {N} greater than the average {N}?"}},
	{`SELECT {A} FROM {T} WHERE {N} = (SELECT MAX({N}) FROM {T})`, []string{
		"List the {A} of every {e} whose {N} equals the maximum.", "Show the {A} of all {E} that share the maximum {N}."}},
	{`SELECT T1.{A}, T2.{pA} FROM {T} AS T1 JOIN {P} AS T2 ON T1.{q}_id = T2.id`, []string{
		"List the {A} of each {e} and the {pA} of its {q}.", "Show the {A} of every {e} together with the {pA} of the {q}.", "What are the {A} of each {e} and the {pA} of its {q}?"}},
	{`SELECT T1.{A} FROM {T} AS T1 JOIN {P} AS T2 ON T1.{q}_id = T2.id WHERE T2.{pC} = "{pc}"`, []string{
		"List the {A} of {E} whose {q} has {pC} {pc}.", "Show the {A} of every {e} of the {q} with {pC} {pc}.", "What is the {A} of {E} whose {q} has the {pC} {pc}?"}},
	{`SELECT COUNT(*) FROM {T} AS T1 JOIN {P} AS T2 ON T1.{q}_id = T2.id WHERE T2.{pC} = "{pc}"`, []string{
		"How many {E} have a {q} with {pC} {pc}?", "Count the {E} whose {q} has {pC} {pc}."}},
	{`SELECT T2.{pA}, COUNT(*) FROM {T} AS T1 JOIN {P} AS T2 ON T1.{q}_id = T2.id GROUP BY T2.{pA}`, []string{
		"How many {E} are there for each {pA} of the {q}?", "Count the {E} for each {q} by {pA}."}},
	{`SELECT T1.{A} FROM {T} AS T1 JOIN {P} AS T2 ON T1.{q}_id = T2.id WHERE T2.{pN} > {pn}`, []string{
		"List the {A} of {E} whose {q} has a {pN} above {pn}.", "Show the {A} of every {e} of a {q} with {pN} greater than {pn}."}},
}

var heldOutQuestions = []question{
	{`SELECT COUNT(*) FROM {T} WHERE {N} < {n}`, []string{
		"How many {E} have a {N} below {n}?", "Count the {E} whose {N} is less than {n}."}},
	{`SELECT MAX({N}) FROM {T} WHERE {C} = "{c}"`, []string{
		"What is the highest {N} of {E} whose {C} is {c}?", "Find the maximum {N} among {E} with {C} {c}."}},
	{`SELECT {A}, {B} FROM {T} WHERE {N} > {n}`, []string{
		"List the {A} and {B} of {E} with a {N} above {n}.", "Show the {A} and the {B} of {E} whose {N} is greater than {n}."}},
	{`SELECT {A} FROM {T} WHERE {C} = "{c}" AND {N} < {n}`, []string{
		"List the {A} of {E} whose {C} is {c} and whose {N} is below {n}.", "Show the {A} of {E} with {C} {c} and {N} less than {n}."}},
	{`SELECT {A}, {B} FROM {T} ORDER BY {N} DESC`, []string{
		"List the {A} and {B} of all {E} from highest to lowest {N}.", "Show the {A} and {B} of all {E} sorted by {N} in descending order."}},
	{`SELECT {A} FROM {T} WHERE {C} = "{c}" ORDER BY {N} ASC`, []string{
		"List the {A} of {E} whose {C} is {c} from lowest to highest {N}.", "Show the {A} of {E} with {C} {c} sorted by {N} in ascending order."}},
	{`SELECT {C}, MAX({N}) FROM {T} GROUP BY {C}`, []string{
		"What is the highest {N} of {E} for each {C}?", "Show the maximum {N} of the {E} of each {C}."}},
	{`SELECT {A} FROM {T} WHERE {N} < (SELECT AVG({N}) FROM {T})`, []string{
		"List the {A} of {E} whose {N} is below the average.", "Show the {A} of {E} with a below average {N}."}},
	{`SELECT DISTINCT {C} FROM {T} WHERE {N} > {n}`, []string{
		"List the different {C} of {E} with a {N} above {n}.", "Show each distinct {C} of {E} whose {N} is greater than {n}."}},
	{`SELECT AVG({N}), MAX({N}) FROM {T}`, []string{
		"What are the average and highest {N} of all {E}?", "Find the average and maximum {N} among the {E}."}},
	{`SELECT {A}, {B} FROM {T} WHERE {Y} > "{y}"`, []string{
		"List the {A} and {B} of {E} with a {Y} after {y}.", "Show the {A} and the {B} of {E} whose {Y} is after {y}."}},
	{`SELECT T1.{A}, T2.{pA} FROM {T} AS T1 JOIN {P} AS T2 ON T1.{q}_id = T2.id WHERE T2.{pC} = "{pc}"`, []string{
		"List the {A} of each {e} and the {pA} of its {q} where the {q} has {pC} {pc}.", "Show the {A} of every {e} together with the {pA} of the {q} with {pC} {pc}."}},
}
