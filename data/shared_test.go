package data

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/internal/testdata"
)

// sharedRecords are the records of a sound JSON file, in any of the containers.
func sharedRecords(t testing.TB, path string) []Raw {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(b))
		require.NoError(t, err)
		b, err = io.ReadAll(z)
		require.NoError(t, err)
	}
	var list []json.RawMessage
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte("[")) {
		require.NoError(t, json.Unmarshal(b, &list))
	} else {
		for d := json.NewDecoder(bytes.NewReader(b)); d.More(); {
			var one json.RawMessage
			require.NoError(t, d.Decode(&one))
			list = append(list, one)
		}
	}
	out := make([]Raw, len(list))
	for i, e := range list {
		out[i] = Raw{Number: int64(i + 1), JSON: e}
	}
	return out
}

// outcome says what became of an element: "kept", "changed: …", "bad: …" or
// "skipped: …" with the codes.
func outcome(t testing.TB, f Format, raw Raw) string {
	t.Helper()
	r, err := f.decode(raw)
	var b *BadRecordError
	var s *SkipError
	switch {
	case errors.As(err, &b):
		return "bad: " + b.Code
	case errors.As(err, &s):
		return "skipped: " + s.Reason
	case err != nil:
		require.True(t, specstream.BadInput(err), "%v", err)
		return "damaged"
	case len(r.Changed) > 0:
		return "changed: " + strings.Join(r.Changed, ", ")
	}
	return "kept"
}

func account(t testing.TB, f Format, all []Raw) map[string]int {
	t.Helper()
	got := map[string]int{}
	for _, raw := range all {
		got[outcome(t, f, raw)]++
	}
	return got
}

func chatFor(t testing.TB, repeated string) Format {
	t.Helper()
	f, err := FormatFor(specstream.DataSpec{Format: "sharegpt", Clean: &specstream.CleanSpec{RepeatedTurns: repeated}}.WithDefaults())
	require.NoError(t, err)
	return f
}

// TestSharedAccounts holds every shared conversation and question to its
// outcome: nothing is lost without an entry, and what is kept is the source's
// text.
func TestSharedAccounts(t *testing.T) {
	const tools, toolText = "changed: " + ChangedToolsIgnored, "changed: " + ChangedToolRoles
	const trailing = "changed: " + ChangedTrailingTurns
	type counts = map[string]int
	want := map[string]counts{
		"glaive_toolcall_en.json.gz":                   {tools: 120, toolText + ", " + ChangedToolsIgnored: 124},
		"glaive_toolcall_zh.json.gz":                   {tools: 119, toolText + ", " + ChangedToolsIgnored: 128},
		"lf_dpo_en.json.gz":                            {"kept": 247},
		"medicalgpt_sharegpt_zh.json.gz":               {"kept": 799, trailing: 6, "bad: " + BadEmptyCompletion: 3, "skipped: " + SkipNoPair: 1},
		"mix_dev.json":                                 {"kept": 248, toolText: 52},
		"mix_train.json.gz":                            {"kept": 2545, toolText: 377, trailing: 105, "bad: " + BadEmptyCompletion: 3, "skipped: " + SkipNoPair: 1},
		"mnbvc_vicuna_sample.json.gz":                  {"kept": 4},
		"moss.json.gz":                                 {"kept": 462, toolText: 378},
		"mtbench101.json.gz":                           {"kept": 993},
		"oasst_trees.json.gz":                          {"kept": 265, trailing: 178},
		"sgd.json.gz":                                  {"kept": 2200},
		"sharegpt_real_sample.json.gz":                 {"kept": 33},
		"messy/axolotl_conversation.json":              {"kept": 1},
		"messy/axolotl_conversation.missingturns.json": {"bad: " + BadEmptyCompletion: 1},
		"messy/dialect_conversation_pairs.json":        {"kept": 5},
		"messy/dialect_messages_kto_en.json.gz":        {"kept": 300},
		"messy/dialogstudio_original_example.json":     {"kept": 5},
		"messy/fastchat_dummy_conversation.json.gz":    {"kept": 500},
		"messy/messy_made.json.gz": {
			"kept": 63, trailing: 6, "changed: " + ChangedLeadingTurns: 5, "bad: " + BadEmptyCompletion: 7,
			"bad: " + BadEmptyRecord: 1, "skipped: " + SkipSystemInside: 2, "skipped: " + SkipTurnOrder: 6,
		},
	}
	root := filepath.Dir(testdata.Shared(t, "sharegpt/mix_dev.json"))
	f := chatFor(t, repeatedDrop)
	seen := 0
	require.NoError(t, filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(p, ".notes.jsonl") {
			return err
		}
		rel, err := filepath.Rel(root, p)
		require.NoError(t, err)
		seen++
		if info, err := d.Info(); err != nil || testing.Short() && info.Size() > 500<<10 {
			return err
		}
		all := sharedRecords(t, p)
		require.Equal(t, want[filepath.ToSlash(rel)], account(t, f, all), rel)
		for _, raw := range all {
			checkTexts(t, f, raw)
		}
		return nil
	}))
	require.Equal(t, len(want), seen)

	questions := formatNamed(t, "specbench")
	for file, want := range map[string]counts{
		"eval/spec_bench_question.jsonl":      {"kept": 480},
		"eval/mt_bench_question.jsonl":        {"kept": 80},
		"eval/mt_bench_reference_gpt-4.jsonl": {"bad: " + BadMissing: 30}, // answers, not questions
	} {
		require.Equal(t, want, account(t, questions, sharedRecords(t, testdata.Shared(t, file))), file)
	}
}

// checkTexts holds the turns of a record that was kept unchanged to the texts of
// its source, as encoding/json reads them.
func checkTexts(t *testing.T, f Format, raw Raw) {
	t.Helper()
	r, err := f.decode(raw)
	if err != nil || len(r.Changed) > 0 {
		return
	}
	var v map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw.JSON, &v))
	var want []string
	for _, field := range chatLists {
		var list []map[string]any
		if json.Unmarshal(v[field], &list) != nil {
			continue
		}
		for _, turn := range list {
			for _, key := range []string{"value", "content", "human", "assistant"} {
				if text, ok := turn[key].(string); ok {
					want = append(want, text)
				}
			}
		}
	}
	got := make([]string, 0, len(r.Turns))
	for _, turn := range r.Turns {
		got = append(got, turn.Text)
	}
	require.Equal(t, want, got)
}

// TestMessyRecords holds each damaged record to the outcome of its damage, by the
// notes of who made it.
func TestMessyRecords(t *testing.T) {
	all := sharedRecords(t, testdata.Shared(t, "sharegpt/messy/messy_made.json.gz"))
	notes := sharedRecords(t, testdata.Shared(t, "sharegpt/messy/messy_made.notes.jsonl"))
	require.Equal(t, len(all), len(notes))
	type outcomes = map[string][2]int // with repeated turns dropped, and merged
	both := func(n int) [2]int { return [2]int{n, n} }
	want := map[string]outcomes{
		// What cleaning looks at is no business of decoding.
		"unchanged":                                             {"kept": both(9), "changed: " + ChangedTrailingTurns: both(1)},
		"exact duplicate of the record before":                  {"kept": both(6)},
		"same id as the record before, other content":           {"kept": both(4)},
		"upper-case near-duplicate":                             {"kept": both(1)},
		"gpt turns as HTML, the form of the raw ShareGPT crawl": {"kept": both(10)},
		"user-interface left-overs":                             {"kept": both(3)},
		"one turn repeated 40 times (very long)":                {"kept": both(2)},
		"last gpt turn cut off":                                 {"kept": both(2)},
		"CRLF inside values":                                    {"kept": both(3)},
		"BOM / zero-width / NBSP at the ends of the text":       {"kept": both(2)},
		"right-to-left and many scripts":                        {"kept": both(1)},

		"first gpt turn missing: two human turns in a row": {
			"skipped: " + SkipTurnOrder:                                 {6, 0},
			"changed: " + ChangedRepeated:                               {0, 5},
			"changed: " + ChangedTrailingTurns + ", " + ChangedRepeated: {0, 1},
		},
		"starts with gpt":                {"changed: " + ChangedLeadingTurns: both(5)},
		"ends with human":                {"changed: " + ChangedTrailingTurns: both(5)},
		"empty gpt value":                {"bad: " + BadEmptyCompletion: both(4)},
		"white-space-only gpt value":     {"bad: " + BadEmptyCompletion: both(3)},
		"empty conversations":            {"bad: " + BadEmptyRecord: both(1)},
		"role names user/assistant":      {"kept": both(2)},
		"role names human/chatgpt":       {"kept": both(2)},
		"role names human/bing":          {"kept": both(2)},
		"role names Human/GPT":           {"kept": both(2)},
		"role names human/bard":          {"kept": both(2)},
		"system turn first":              {"kept": both(3)},
		"system turn in the middle":      {"skipped: " + SkipSystemInside: both(2)},
		"no id":                          {"kept": both(3)},
		"numeric id":                     {"kept": both(2)},
		"extra keys on record and turns": {"kept": both(2)},
	}
	got := map[string]outcomes{}
	for _, n := range notes {
		var note struct {
			Index int
			What  string
		}
		require.NoError(t, json.Unmarshal(n.JSON, &note))
		if got[note.What] == nil {
			got[note.What] = outcomes{}
		}
		for i, repeated := range []string{repeatedDrop, repeatedMerge} {
			o := outcome(t, chatFor(t, repeated), all[note.Index])
			n := got[note.What][o]
			n[i]++
			got[note.What][o] = n
		}
	}
	require.Equal(t, want, got)
}

// TestSharedQuestions: references belong to the turns they stand beside.
func TestSharedQuestions(t *testing.T) {
	f := formatNamed(t, "specbench")
	byCategory := map[string][3]int{} // questions, with a reference, with further turns
	alternatives := 0
	for _, raw := range sharedRecords(t, testdata.Shared(t, "eval/spec_bench_question.jsonl")) {
		r, err := f.decode(raw)
		require.NoError(t, err)
		require.NotEmpty(t, r.ID)
		n := byCategory[r.Category]
		n[0]++
		n[1] += len(r.Turns) - 1
		n[2] += len(r.Followups)
		byCategory[r.Category] = n
		alternatives += len(r.Alternatives)
	}
	require.Equal(t, map[string][3]int{
		"translation": {80, 80, 0}, "summarization": {80, 80, 0}, "qa": {80, 0, 0}, "math_reasoning": {80, 80, 0}, "rag": {80, 80, 0},
		"writing": {10, 0, 10}, "roleplay": {10, 1, 10}, "reasoning": {10, 10, 10}, "math": {10, 10, 10},
		"coding": {10, 9, 10}, "extraction": {10, 4, 10}, "stem": {10, 4, 10}, "humanities": {10, 0, 10},
	}, byCategory)
	require.Equal(t, 73, alternatives)
}
