package workflows

import (
	"time"

	"github.com/specstream/specstream"
)

// IngestInput asks for a dataset.
type IngestInput struct {
	Spec specstream.DataSpec `json:"spec"`
	// Base supplies the tokenizer when the spec names none.
	Base specstream.Ref `json:"base"`
	// Runtime says how the work is run; it changes no result.
	Runtime specstream.RuntimeSpec `json:"runtime,omitzero"`
	// State is where an earlier run of the same workflow has come to. Users
	// leave it out.
	State *IngestState `json:"state,omitempty"`
}

// DatasetInfo describes a committed dataset.
type DatasetInfo struct {
	Ref specstream.Ref `json:"ref"`
	// Digest names the dataset's content; equal records, template and tokenizer
	// give equal digests.
	Digest  specstream.Digest `json:"digest"`
	Account Account           `json:"account"`
}

// Account says what became of the records read.
type Account struct {
	Read    int64            `json:"read"`
	Kept    int64            `json:"kept"`
	Dropped map[string]int64 `json:"dropped,omitempty"` // by reason
	Changed map[string]int64 `json:"changed,omitempty"` // by reason
	Tokens  int64            `json:"tokens"`
	Shards  int              `json:"shards"`
	// Manifest is the digest of the dataset's manifest.
	Manifest specstream.Digest `json:"manifest,omitempty"`
}

// IngestStage is where an ingestion is.
type IngestStage string

// The stages of an ingestion, in order. Only where duplicates are left out are
// parts signed and duplicates resolved.
const (
	IngestPlan    IngestStage = "planning"
	IngestSign    IngestStage = "signing"
	IngestResolve IngestStage = "resolving_duplicates"
	IngestProcess IngestStage = "processing"
	IngestCommit  IngestStage = "committing"
	IngestDone    IngestStage = "done"
)

// IngestState is what an ingestion needs to go on: references, no content.
type IngestState struct {
	// Plan names the plan, Resolution the resolved duplicates.
	Plan       specstream.Digest `json:"plan"`
	Resolution specstream.Digest `json:"resolution,omitempty"`
	// Parts and Bytes (stored) are the plan's size.
	Parts int   `json:"parts"`
	Bytes int64 `json:"bytes"`
	// Stage is IngestSign or IngestProcess; Pending are the parts that it has
	// not done yet, as ranges [from, to), BytesDone the bytes of parts that the
	// workflow has seen done.
	Stage     IngestStage `json:"stage"`
	Pending   [][2]int    `json:"pending"`
	BytesDone int64       `json:"bytes_done,omitempty"`
}

// IngestStatus answers [StatusQuery] of an ingestion. What single activities are
// doing is in their heartbeats.
type IngestStatus struct {
	Stage IngestStage `json:"stage"`
	Since time.Time   `json:"since"` // when the stage began, or the workflow went on as a new run
	// Done of Parts parts are done in this stage.
	Done  int `json:"done"`
	Parts int `json:"parts"`
	// BytesDone of Bytes stored bytes were worked on in this stage; parts that
	// were done before do not count.
	BytesDone int64 `json:"bytes_done"`
	Bytes     int64 `json:"bytes"`
	// The means since the stage began, and how long the rest takes at that
	// speed; 0 while unknown.
	RecordsPerSecond float64 `json:"records_per_second,omitempty"`
	MBPerSecond      float64 `json:"mb_per_second,omitempty"`
	ETASeconds       float64 `json:"eta_seconds,omitempty"`
}

// IngestStep asks for one step of an ingestion.
type IngestStep struct {
	Spec specstream.DataSpec `json:"spec"`
	Base specstream.Ref      `json:"base"`
	// Plan names the plan, for all steps but the planning itself.
	Plan specstream.Digest `json:"plan,omitempty"`
	// Resolution names the resolved duplicates, where there are any.
	Resolution specstream.Digest `json:"resolution,omitempty"`
	// Part is the index of the part to sign or to process.
	Part int `json:"part"`
}

// DatasetPlan describes a planned ingestion.
type DatasetPlan struct {
	// Plan names it in the store.
	Plan specstream.Digest `json:"plan"`
	// Parts, Bytes (stored) and Records are its size.
	Parts   int   `json:"parts"`
	Bytes   int64 `json:"bytes"`
	Records int64 `json:"records"`
	// Dedupes says that duplicates are left out.
	Dedupes bool `json:"dedupes"`
	// Pending are the parts on which the first stage is not done yet, as ranges
	// [from, to).
	Pending [][2]int `json:"pending"`
	// Dataset is set when there was so little to do that it is done.
	Dataset *DatasetInfo `json:"dataset,omitempty"`
}

// DatasetPart is what working on one part came to.
type DatasetPart struct {
	Bytes       int64 `json:"bytes"`
	Records     int64 `json:"records"`
	Quarantined int64 `json:"quarantined"`
	Samples     int64 `json:"samples"`
	Tokens      int64 `json:"tokens"`
}

// DatasetDuplicates are the resolved duplicates of a planned ingestion.
type DatasetDuplicates struct {
	Resolution specstream.Digest `json:"resolution"`
	// Pending are the parts that are not processed yet, as ranges [from, to).
	Pending [][2]int `json:"pending"`
}

// flatten returns the numbers of ranges.
func flatten(ranges [][2]int) (out []int) {
	for _, r := range ranges {
		for i := r[0]; i < r[1]; i++ {
			out = append(out, i)
		}
	}
	return out
}

// ranges returns ascending numbers as ranges.
func ranges(numbers []int) (out [][2]int) {
	for _, i := range numbers {
		if n := len(out); n > 0 && out[n-1][1] == i {
			out[n-1][1]++
		} else {
			out = append(out, [2]int{i, i + 1})
		}
	}
	return out
}
