package specstream

import (
	"reflect"
	"time"
)

// JobSpec is one run of the pipeline: the input of the Pipeline workflow.
type JobSpec struct {
	// Name is for people and for listings. Default "job".
	Name string `json:"name,omitempty"`
	// Base is the base model: a Hugging Face folder on the worker's disk, or the
	// reference of a base in the store (KEY@DIGEST).
	Base string `json:"base"`
	// Data is what adapters are trained on.
	Data DataSpec `json:"data"`
	// HoldOut is what checkpoints are evaluated on.
	HoldOut DataSpec `json:"hold_out"`
	// Modes are the modes trained, in this order. Default: lossless, then shared.
	Modes []Mode `json:"modes,omitempty"`
	// Train is how; its mode is set from Modes.
	Train TrainSpec `json:"train"`
	// Overrides replaces Train for single modes.
	Overrides map[Mode]TrainSpec `json:"overrides,omitempty"`
	// Eval is how checkpoints are measured.
	Eval EvalSpec `json:"eval"`
	// Gates are the least figures a checkpoint must reach.
	Gates GateSpec `json:"gates,omitempty"`
	// Approval says how a person is asked.
	Approval ApprovalSpec `json:"approval,omitempty"`
	// Alias is what the approved checkpoint is promoted to. Default "production".
	Alias string `json:"alias,omitempty"`
	// Promote is the mode whose checkpoint is promoted. Default: the first of Modes.
	Promote Mode `json:"promote,omitempty"`
	// Runtime says how the job is run. It changes no result and no digest.
	Runtime RuntimeSpec `json:"runtime,omitzero"`
}

// RuntimeSpec says how a job is run.
type RuntimeSpec struct {
	// HeartbeatTimeout is how long a worker may be silent before its work is
	// given to another, as a Go duration. Default "2m".
	HeartbeatTimeout string `json:"heartbeat_timeout,omitempty"`
}

// Heartbeat returns HeartbeatTimeout as a duration.
func (s RuntimeSpec) Heartbeat() (time.Duration, error) {
	d, err := time.ParseDuration(s.HeartbeatTimeout)
	if err != nil || d < time.Second {
		return 0, Invalid("heartbeat_timeout", "%q is not a duration of at least 1s", s.HeartbeatTimeout)
	}
	return d, nil
}

// WithDefaults returns a copy with every unset field at its default.
func (s JobSpec) WithDefaults() JobSpec {
	if s.Name == "" {
		s.Name = "job"
	}
	if len(s.Modes) == 0 {
		s.Modes = []Mode{Lossless, Shared}
	}
	if s.Alias == "" {
		s.Alias = "production"
	}
	if s.Promote == "" {
		s.Promote = s.Modes[0]
	}
	if s.Approval.Timeout == "" {
		s.Approval.Timeout = "72h"
	}
	if s.Runtime.HeartbeatTimeout == "" {
		s.Runtime.HeartbeatTimeout = "2m"
	}
	s.Data = s.Data.WithDefaults()
	s.HoldOut = s.HoldOut.WithDefaults()
	s.Eval = s.Eval.WithDefaults()
	return s
}

// Validate checks a completed spec and names the first bad field.
func (s JobSpec) Validate() error {
	if s.Base == "" {
		return Invalid("base", "no base model is named")
	}
	if err := inField("data", s.Data.Validate()); err != nil {
		return err
	}
	if err := inField("hold_out", s.HoldOut.Validate()); err != nil {
		return err
	}
	promoted := false
	seen := map[Mode]bool{}
	for _, m := range s.Modes {
		if seen[m] {
			return Invalid("modes", "%q is named twice", m)
		}
		seen[m] = true
		promoted = promoted || m == s.Promote
		if err := inField("train", s.TrainFor(m).Validate()); err != nil {
			return err
		}
	}
	for m := range s.Overrides {
		if !seen[m] {
			return Invalid("overrides", "mode %q is not among the job's modes", m)
		}
	}
	if !promoted {
		return Invalid("promote", "mode %q is not among the job's modes", s.Promote)
	}
	if err := inField("eval", s.Eval.Validate()); err != nil {
		return err
	}
	if _, err := s.Approval.Wait(); err != nil {
		return inField("approval", err)
	}
	_, err := s.Runtime.Heartbeat()
	return inField("runtime", err)
}

// TrainFor returns the completed training spec of one mode.
func (s JobSpec) TrainFor(m Mode) TrainSpec {
	t := s.Train
	if o, ok := s.Overrides[m]; ok {
		t = o
	}
	t.Mode = m
	return t.WithDefaults()
}

// Digest names the completed job. How it is run is left out.
func (s JobSpec) Digest() (Digest, error) {
	s.Runtime = RuntimeSpec{}
	s.Data, s.HoldOut = s.Data.Named(), s.HoldOut.Named()
	return DigestJSON(s)
}

// Named returns the spec as identities are made of it: completed, but without
// the fields that came later where they are at their defaults. So jobs that were
// started before there were such fields keep their identities.
func (s DataSpec) Named() DataSpec {
	s = s.WithDefaults()
	plain := DataSpec{Format: s.Format}.WithDefaults()
	if reflect.DeepEqual(s.Clean, plain.Clean) {
		s.Clean = nil
	}
	if s.Overlong == plain.Overlong {
		s.Overlong = ""
	}
	if s.SpecialTokens == plain.SpecialTokens {
		s.SpecialTokens = ""
	}
	if s.MaxExpansion == plain.MaxExpansion {
		s.MaxExpansion = 0
	}
	if s.PartitionBytes == plain.PartitionBytes {
		s.PartitionBytes = 0
	}
	return s
}

// Wait returns Timeout as a duration.
func (s ApprovalSpec) Wait() (time.Duration, error) {
	d, err := time.ParseDuration(s.Timeout)
	if err != nil || d <= 0 {
		return 0, Invalid("timeout", "%q is not a positive duration such as 72h", s.Timeout)
	}
	return d, nil
}
