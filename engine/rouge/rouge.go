// Package rouge computes ROUGE-1 and ROUGE-LSum exactly as Google's rouge-score
// does with stemming on: the figures that papers on summarisation report.
//
// Text is lower-cased and cut at everything but a–z and 0–9; words of more than
// three letters are stemmed (Porter, NLTK's extensions); sentences, for LSum, are
// the lines. Only Latin letters and digits count, as there.
package rouge

import (
	"slices"
	"strings"
)

// Score is precision, recall and their harmonic mean, each 0..1.
type Score struct {
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F         float64 `json:"f"`
}

// Scores are the measures of one candidate.
type Scores struct {
	Rouge1    Score `json:"rouge1"`
	RougeLSum Score `json:"rouge_lsum"`
}

// Compare scores a candidate text against a reference text.
func Compare(reference, candidate string) Scores {
	return Scores{
		Rouge1:    unigrams(tokenize(reference), tokenize(candidate)),
		RougeLSum: summaryLCS(sentences(reference), sentences(candidate)),
	}
}

// CompareMulti scores a candidate against several references and returns, for
// each measure, the score of the reference with the highest F, the first among
// equals. Without references all is zero.
func CompareMulti(references []string, candidate string) Scores {
	var best Scores
	for i, r := range references {
		s := Compare(r, candidate)
		if i == 0 || s.Rouge1.F > best.Rouge1.F {
			best.Rouge1 = s.Rouge1
		}
		if i == 0 || s.RougeLSum.F > best.RougeLSum.F {
			best.RougeLSum = s.RougeLSum
		}
	}
	return best
}

// tokenize returns the stemmed words of a text.
func tokenize(text string) []string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r >= 'A' && r <= 'Z':
			b.WriteRune(r + 'a' - 'A')
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case r == '\u212a': // the Kelvin sign lower-cases to k
			b.WriteByte('k')
		case r == '\u0130': // İ lower-cases to i and a combining dot, which cuts
			b.WriteString("i ")
		default:
			b.WriteByte(' ')
		}
	}
	words := strings.Fields(b.String())
	for i, w := range words {
		if len(w) > 3 {
			words[i] = stem(w)
		}
	}
	return words
}

// sentences tokenises each non-empty line.
func sentences(text string) [][]string {
	var s [][]string
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			s = append(s, tokenize(line))
		}
	}
	return s
}

func count(words []string) map[string]int {
	c := make(map[string]int, len(words))
	for _, w := range words {
		c[w]++
	}
	return c
}

func score(hits, reference, candidate int) Score {
	if reference == 0 || candidate == 0 {
		return Score{}
	}
	s := Score{Precision: float64(hits) / float64(candidate), Recall: float64(hits) / float64(reference)}
	if s.Precision+s.Recall > 0 {
		s.F = 2 * s.Precision * s.Recall / (s.Precision + s.Recall)
	}
	return s
}

func unigrams(reference, candidate []string) Score {
	inCandidate := count(candidate)
	hits := 0
	for w, n := range count(reference) {
		hits += min(n, inCandidate[w])
	}
	return score(hits, len(reference), len(candidate))
}

// summaryLCS is the summary-level LCS of section 3.2 of the ROUGE paper: for
// every reference sentence the union of its longest common subsequences with
// the candidate's sentences, each word counted no more often than it occurs.
func summaryLCS(reference, candidate [][]string) Score {
	left, right := map[string]int{}, map[string]int{}
	m, n := 0, 0
	for _, s := range reference {
		m += len(s)
		for _, w := range s {
			left[w]++
		}
	}
	for _, s := range candidate {
		n += len(s)
		for _, w := range s {
			right[w]++
		}
	}
	hits := 0
	var table []int
	for _, r := range reference {
		inUnion := make([]bool, len(r))
		for _, c := range candidate {
			table = markLCS(r, c, inUnion, table)
		}
		for i, w := range r {
			if inUnion[i] && left[w] > 0 && right[w] > 0 {
				hits++
				left[w]--
				right[w]--
			}
		}
	}
	return score(hits, m, n)
}

// markLCS marks the words of ref that the longest common subsequence with can
// uses. Of several, it takes the one rouge-score's backtracking finds. The table
// is scratch, returned for reuse.
func markLCS(ref, can []string, mark []bool, table []int) []int {
	cols := len(can) + 1
	table = slices.Grow(table[:0], (len(ref)+1)*cols)[:(len(ref)+1)*cols]
	clear(table)
	for i, r := range ref {
		for j, c := range can {
			if r == c {
				table[(i+1)*cols+j+1] = table[i*cols+j] + 1
			} else {
				table[(i+1)*cols+j+1] = max(table[i*cols+j+1], table[(i+1)*cols+j])
			}
		}
	}
	for i, j := len(ref), len(can); i > 0 && j > 0; {
		switch {
		case ref[i-1] == can[j-1]:
			mark[i-1] = true
			i, j = i-1, j-1
		case table[i*cols+j-1] > table[(i-1)*cols+j]:
			j--
		default:
			i--
		}
	}
	return table
}
