package specstream

import "testing"

// TestIdentityOutlivesNewFields: fields that came to data specifications later
// change no job's identity while they are at their defaults, and do otherwise.
func TestIdentityOutlivesNewFields(t *testing.T) {
	job := func(edit func(*DataSpec)) JobSpec {
		j := JobSpec{Base: "b", Data: DataSpec{Format: "sql", Inputs: []string{"a"}}, HoldOut: DataSpec{Format: "sharegpt", Inputs: []string{"c"}}}
		if edit != nil {
			edit(&j.Data)
		}
		return j.WithDefaults()
	}
	digest := func(j JobSpec) Digest {
		d, err := j.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	plain := digest(job(nil))
	const want = "sha256:bb4a4089de74" // as before there were such fields
	if got := "sha256:" + plain.Short(); got != want {
		t.Errorf("the job is %s, want %s", got, want)
	}
	for _, c := range []struct {
		name string
		edit func(*DataSpec)
		same bool
	}{
		{"defaults spelt out", func(s *DataSpec) { *s = s.WithDefaults() }, true},
		{"overlong", func(s *DataSpec) { s.Overlong = OverlongCut }, false},
		{"special tokens", func(s *DataSpec) { s.SpecialTokens = SpecialAsControl }, false},
		{"cleaning", func(s *DataSpec) { s.Clean = &CleanSpec{HTML: true} }, false},
		{"pins", func(s *DataSpec) { s.SHA256 = map[string]Digest{"a": plain} }, false},
		{"partitions", func(s *DataSpec) { s.PartitionBytes = 1 }, false},
		{"expansion", func(s *DataSpec) { s.MaxExpansion = 1 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := digest(job(c.edit)); (got == plain) != c.same {
				t.Errorf("the job is %s, the plain one %s", got.Short(), plain.Short())
			}
		})
	}
}
