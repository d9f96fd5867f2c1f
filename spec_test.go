package specstream

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func testJob() JobSpec {
	return JobSpec{Base: "/base", Data: DataSpec{Format: "sql", Inputs: []string{"a"}}, HoldOut: DataSpec{Format: "sql", Inputs: []string{"b"}}}
}

func TestJobDefaults(t *testing.T) {
	s := testJob().WithDefaults()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	l, sh := s.TrainFor(Lossless), s.TrainFor(Shared)
	if l.Mode != Lossless || l.StreamRank != 8 || l.MSALayers != 4 || l.Gamma != 4 || *l.Alpha0 != 0 || *l.AlphaStream != 1 || l.LoRARank != 0 {
		t.Errorf("lossless defaults are %+v", l)
	}
	if sh.Mode != Shared || sh.LoRARank != 32 || sh.LoRAAlpha != 32 || len(sh.LoRATargets) != 7 || *sh.Alpha0 != 1 || *sh.AlphaStream != 0.1 || sh.StreamRank != 0 {
		t.Errorf("shared defaults are %+v", sh)
	}
	if s.Alias != "production" || s.Promote != Lossless || s.Approval.Timeout != "72h" || s.Eval.TreeNodes != 32 {
		t.Errorf("job defaults are %+v", s)
	}
}

func TestJobValidateNamesTheField(t *testing.T) {
	for _, c := range []struct {
		field string
		spoil func(*JobSpec)
	}{
		{"base", func(s *JobSpec) { s.Base = "" }},
		{"data.format", func(s *JobSpec) { s.Data.Format = "xml" }},
		{"hold_out.inputs", func(s *JobSpec) { s.HoldOut.Inputs = nil }},
		{"data.max_bad", func(s *JobSpec) { s.Data.MaxBad = "150%" }},
		{"modes", func(s *JobSpec) { s.Modes = []Mode{Shared, Shared}; s.Promote = Shared }},
		{"train.mode", func(s *JobSpec) { s.Modes = []Mode{"fast"}; s.Promote = "fast" }},
		{"train.gamma", func(s *JobSpec) { s.Train.Gamma = 99 }},
		{"train.micro_batch", func(s *JobSpec) { s.Train.BatchSize, s.Train.MicroBatch = 4, 8 }},
		{"train.lora_targets", func(s *JobSpec) { s.Train.LoRATargets = []string{"lm_head"} }},
		{"overrides", func(s *JobSpec) { s.Modes = []Mode{Lossless}; s.Overrides = map[Mode]TrainSpec{Shared: {}} }},
		{"promote", func(s *JobSpec) { s.Modes = []Mode{Lossless}; s.Promote = Shared }},
		{"eval.tree_factor", func(s *JobSpec) { s.Eval.TreeFactor = -1 }},
		{"approval.timeout", func(s *JobSpec) { s.Approval.Timeout = "soon" }},
		{"runtime.heartbeat_timeout", func(s *JobSpec) { s.Runtime.HeartbeatTimeout = "1ms" }},
	} {
		s := testJob().WithDefaults()
		c.spoil(&s)
		var in *InputError
		if err := s.Validate(); !errors.As(err, &in) || in.Field != c.field {
			t.Errorf("%s: error is %v", c.field, err)
		}
	}
}

func TestJobDigest(t *testing.T) {
	d := func(s JobSpec) Digest {
		v, err := s.WithDefaults().Digest()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a := testJob()
	b := a
	b.Runtime.HeartbeatTimeout = "7s"
	if d(a) != d(b) {
		t.Error("how a job is run changes its digest")
	}
	b.Train.Steps = 7
	if d(a) == d(b) {
		t.Error("how an adapter is trained does not change the digest")
	}
	if d(a) != d(a.WithDefaults()) {
		t.Error("completing a completed job changes its digest")
	}
}

func TestDecodeStrict(t *testing.T) {
	for _, c := range []struct{ name, json, want string }{
		{"unknown field", `{"base": "x", "stepz": 3}`, `job.json: field "stepz": unknown field`},
		{"unknown field below", `{"base": "x", "train": {"stepz": 3}}`, `job.json: field "train.stepz": unknown field (the fields there are mode, gamma`},
		{"wrong type", `{"train": {"steps": "many"}}`, `job.json: field "train.steps": want int, got JSON string`},
		{"truncated", `{"base": "x"`, "job.json: the JSON ends too early"},
		{"empty", ``, "job.json: the JSON ends too early"},
		{"trailing", `{} {}`, "job.json: data after the JSON value"},
		{"not JSON", `base: x`, "job.json: invalid JSON"},
	} {
		var s JobSpec
		err := DecodeStrict("job.json", strings.NewReader(c.json), &s)
		if !BadInput(err) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s…", c.name, err, c.want)
		}
	}
	var s JobSpec
	if err := DecodeStrict("job.json", strings.NewReader(`{"base": "x", "train": {"steps": 3, "gamma": 2}}`), &s); err != nil || s.Train.Gamma != 2 {
		t.Errorf("a good job gives %+v, %v", s, err)
	}
}

func TestTolerance(t *testing.T) {
	for _, c := range []struct {
		spec      string
		bad, read int64
		end, want bool
	}{
		{"0", 0, 10, false, false}, {"0", 1, 10, false, true}, {"2", 2, 10, true, false}, {"2", 3, 10, false, true},
		{"10%", 5, 10, false, false}, {"10%", 1, 10, true, false}, {"10%", 2, 10, true, true}, {"0%", 1, 1000, true, true}, {"100%", 9, 9, true, false},
	} {
		tol, err := ParseTolerance(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := tol.Exceeded(c.bad, c.read, c.end); got != c.want {
			t.Errorf("max_bad %s: %d bad of %d (end %v) exceeded = %v", c.spec, c.bad, c.read, c.end, got)
		}
	}
	for _, bad := range []string{"", "-1", "x", "-3%", "NaN%", "101%"} {
		if _, err := ParseTolerance(bad); !BadInput(err) {
			t.Errorf("max_bad %q gives %v", bad, err)
		}
	}
}

func TestRefAndDigest(t *testing.T) {
	r := Ref{Key: "manifests/run/1.json", Digest: DigestBytes([]byte("x"))}
	got, err := ParseRef(r.String())
	if err != nil || got != r {
		t.Errorf("%v is parsed as %v, %v", r, got, err)
	}
	for _, bad := range []string{"", "key", "@sha256:00", "key@md5:00", "key@" + strings.ToUpper(string(r.Digest)), "key@sha256:zz"} {
		if _, err := ParseRef(bad); err == nil {
			t.Errorf("reference %q is accepted", bad)
		}
	}
}

func TestInputErrorIsOneLine(t *testing.T) {
	err := fmt.Errorf("ingest: %w", &InputError{File: "a.json", Record: 3, Field: "answer", Reason: "is a number,\nwant a string", Hint: "mend it"})
	if want := `ingest: a.json: record 3: field "answer": is a number, want a string (mend it)`; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if !BadInput(err) || BadInput(errors.New("x")) {
		t.Error("bad input is not told from other errors")
	}
}
