package report

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

func TestWrite(t *testing.T) {
	d := Data{Title: "Pipeline <demo>", Job: "sha256:00", Outcome: "promoted", Started: time.Unix(0, 0), Ended: time.Unix(90, 0), Facts: []Fact{{"base", "b & c"}},
		Modes: []Mode{{Name: "lossless", Parameters: 12, Seconds: 61, Measures: []Fact{{"mean accepted tokens", "2.41"}},
			Loss:     []Curve{{"main", nil}, {"stream 1", []float64{3, 2, 1.5}}, {"stream 2", []float64{4, 3, 2}}},
			Accuracy: []Curve{{"stream 1", []float64{0.1, 0.5, math.NaN()}}}, Accepted: []int64{10, 20, 5}, Speed: []Bar{{"autoregressive", 100, "tokens/s"}, {"speculative", 230, "tokens/s"}},
			Samples: []Sample{{Prompt: "Q: <x>\n", Reference: "SELECT 1", Calls: []string{"SELECT", " 1"}, Beta: 2}},
			Gates:   []Gate{{"parity", "parity 1, must be 1", true}}}}}
	var b bytes.Buffer
	if err := Write(&b, d); err != nil {
		t.Fatal(err)
	}
	s := b.String()
	for _, want := range []string{"Pipeline &lt;demo&gt;", "b &amp; c", "2.41", "Q: &lt;x&gt;", `<span class="call">SELECT</span>`, "<polyline", "no data", "230 tokens/s", "passed"} {
		if !strings.Contains(s, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	for _, bad := range []string{"<script", "http://", "https://", "NaN"} {
		if strings.Contains(s, bad) {
			t.Errorf("the report has %q: it must be self-contained and clean", bad)
		}
	}
}
