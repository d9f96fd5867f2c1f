package engine

// maxNGram is the longest suffix a prompt-lookup drafter looks up.
const maxNGram = 3

// NGramAccepted measures a drafter that knows nothing but the text: it looks up
// the longest suffix (3, 2, then 1 tokens) of prompt and output so far at its
// most recent earlier occurrence and proposes the up to gamma tokens that
// followed. Output is what greedy decoding emits, so no model is run: calls is
// how many forwards verification would have taken after the prefill, and emitted
// how many tokens they would have emitted, counted as [Result] counts. It is the
// figure a trained drafter must beat.
func NGramAccepted(prompt, output []int32, gamma int) (calls, emitted int) {
	text := make([]int32, 0, len(prompt)+len(output))
	text = append(append(text, prompt...), output...)
	for at := len(prompt) + 1; at < len(text); calls++ {
		draft := lookUp(text[:at], gamma)
		n := 0
		for n < len(draft) && at+n < len(text) && draft[n] == text[at+n] {
			n++
		}
		step := min(n+1, len(text)-at) // the correction too, unless the text ends
		emitted += step
		at += step
	}
	return calls, emitted
}

// lookUp returns what followed the last earlier occurrence of text's longest
// suffix that has one.
func lookUp(text []int32, gamma int) []int32 {
	for n := min(maxNGram, len(text)-1); n >= 1; n-- {
		suffix := text[len(text)-n:]
		for start := len(text) - n - 1; start >= 0; start-- {
			if equal(text[start:start+n], suffix) {
				after := start + n
				return text[after:min(after+gamma, len(text))]
			}
		}
	}
	return nil
}

func equal(a, b []int32) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
