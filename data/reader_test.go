package data

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream/internal/testdata"
)

// tally is what became of the records of one input.
type tally struct {
	records int
	bad     map[string]int
	skipped map[string]int
	changed map[string]int
	last    Record
}

// readAll reads r to its end; err is what ended it, nil at io.EOF.
func readAll(r RecordReader) (t tally, err error) {
	t = tally{bad: map[string]int{}, skipped: map[string]int{}, changed: map[string]int{}}
	for {
		rec, err := r.Next()
		var b *BadRecordError
		var s *SkipError
		switch {
		case err == io.EOF:
			return t, nil
		case errors.As(err, &b):
			t.bad[b.Code]++
		case errors.As(err, &s):
			t.skipped[s.Reason]++
		case err != nil:
			return t, err
		default:
			t.last = rec
			for _, c := range rec.Changed {
				t.changed[c]++
			}
		}
		t.records++
	}
}

// memory opens inputs held in memory by name.
func memory(files map[string][]byte) Opener {
	return func(_ context.Context, uri string) (io.ReadCloser, error) {
		b, ok := files[uri]
		if !ok {
			return nil, fmt.Errorf("get %s: %w", uri, os.ErrNotExist)
		}
		return io.NopCloser(bytes.NewReader(b)), nil
	}
}

func openText(t testing.TB, format, text string) (*Reader, error) {
	t.Helper()
	r, err := OpenWith(context.Background(), formatNamed(t, format), "in", memory(map[string][]byte{"in": []byte(text)}))
	if err == nil {
		t.Cleanup(func() { require.NoError(t, r.Close()) })
	}
	return r, err
}

// TestSharedSets reads every file of the shared data sets to its end. The
// counts are those of the sets' own documentation.
func TestSharedSets(t *testing.T) {
	type counts = map[string]int
	none := counts{}
	for _, c := range []struct {
		format, file string
		records      int
		bad, skipped counts
		changed      counts
	}{
		{"sql", "sql/wikisql_train_4k.json", 4000, none, none, none},
		{"sql", "sql/wikisql_dev_1k.json", 1000, none, none, none},
		{"sql", "sql/wikisql_train.jsonl.gz", 55331, none, none, none},
		{"sql", "sql/wikisql_dev.jsonl.gz", 8266, none, none, none},
		{"sql", "sql/spider_dev_part_a.jsonl", 440, none, none, none},
		{"dialogsum", "dialogsum/train_2k.jsonl", 2000, none, none, none},
		{"dialogsum", "dialogsum/dev.jsonl", 500, none, none, none},
		{"dialogsum", "dialogsum/train.jsonl.gz", 12460, none, none, none},
		{"e2e", "e2e/trainset_4k.csv", 4000, none, none, none},
		{"e2e", "e2e/devset_500.csv", 500, none, none, none},
		{"e2e", "e2e/trainset.csv.gz", 42061, none, none, none},
		{"e2e", "e2e/devset.csv.gz", 4672, none, none, none},
		{"sharegpt", "sharegpt/mix_dev.json", 300, none, none, counts{ChangedToolRoles: 52}},
		{"sharegpt", "sharegpt/mix_train.json.gz", 3031, counts{BadEmptyCompletion: 3}, counts{SkipNoPair: 1}, counts{ChangedToolRoles: 377, ChangedTrailingTurns: 105}},
		{"sharegpt", "sharegpt/medicalgpt_sharegpt_zh.json.gz", 809, counts{BadEmptyCompletion: 3}, counts{SkipNoPair: 1}, counts{ChangedTrailingTurns: 6}},
		{"sharegpt", "sharegpt/moss.json.gz", 840, none, none, counts{ChangedToolRoles: 378}},
		{"sharegpt", "sharegpt/mtbench101.json.gz", 993, none, none, none},
		{"sharegpt", "sharegpt/oasst_trees.json.gz", 443, none, none, counts{ChangedTrailingTurns: 178}},
		{"sharegpt", "sharegpt/glaive_toolcall_en.json.gz", 244, none, none, counts{ChangedToolsIgnored: 244, ChangedToolRoles: 124}},
		{"sharegpt", "sharegpt/glaive_toolcall_zh.json.gz", 247, none, none, counts{ChangedToolsIgnored: 247, ChangedToolRoles: 128}},
		{"sharegpt", "sharegpt/lf_dpo_en.json.gz", 247, none, none, none},
		{"sharegpt", "sharegpt/sgd.json.gz", 2200, none, none, none},
		{"sharegpt", "sharegpt/sharegpt_real_sample.json.gz", 33, none, none, none},
		{"sharegpt", "sharegpt/mnbvc_vicuna_sample.json.gz", 4, none, none, none},
		{"sharegpt", "sharegpt/messy/axolotl_conversation.json", 1, none, none, none},
		{"sharegpt", "sharegpt/messy/axolotl_conversation.missingturns.json", 1, counts{BadEmptyCompletion: 1}, none, none},
		{"sharegpt", "sharegpt/messy/dialect_conversation_pairs.json", 5, none, none, none},
		{"sharegpt", "sharegpt/messy/dialect_messages_kto_en.json.gz", 300, none, none, none},
		{"sharegpt", "sharegpt/messy/dialogstudio_original_example.json", 5, none, none, none},
		{"sharegpt", "sharegpt/messy/fastchat_dummy_conversation.json.gz", 500, none, none, none},
		{"sharegpt", "sharegpt/messy/messy_made.json.gz", 90, counts{BadEmptyCompletion: 7, BadEmptyRecord: 1}, counts{SkipSystemInside: 2, SkipTurnOrder: 6}, counts{ChangedLeadingTurns: 5, ChangedTrailingTurns: 6}},
	} {
		t.Run(c.file, func(t *testing.T) {
			path := testdata.Shared(t, c.file)
			r, err := Open(context.Background(), formatNamed(t, c.format), path)
			require.NoError(t, err)
			got, err := readAll(r)
			require.NoError(t, err)
			require.Equal(t, c.records, got.records)
			require.Equal(t, c.bad, got.bad, "bad")
			require.Equal(t, c.skipped, got.skipped, "skipped")
			require.Equal(t, c.changed, got.changed, "changed")

			require.NoError(t, r.Close())
		})
	}
}

// TestAgainstEncodingJSON reads real arrays record by record, keeps the records,
// and compares them with what encoding/json makes of the whole file: nothing a
// record holds may point into a buffer that is used again.
func TestAgainstEncodingJSON(t *testing.T) {
	read := func(format, file string) (out []Record) {
		r, err := Open(t.Context(), formatNamed(t, format), file)
		require.NoError(t, err)
		for {
			rec, err := r.Next()
			if err == io.EOF {
				require.NoError(t, r.Close())
				return out
			}
			require.NoError(t, err)
			out = append(out, rec)
		}
	}
	whole := func(file string, v any) {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, v))
	}
	t.Run("sql", func(t *testing.T) {
		file := testdata.Shared(t, "sql/wikisql_train_4k.json")
		var want []struct{ Question, Context, Answer string }
		whole(file, &want)
		got := read("sql", file)
		require.Len(t, got, len(want))
		for i, w := range want {
			require.Equal(t, map[string]string{"question": w.Question, "context": w.Context}, got[i].Fields)
			require.Equal(t, w.Answer, got[i].Turns[1].Text)
		}
	})
	t.Run("sharegpt", func(t *testing.T) {
		file := testdata.Shared(t, "sharegpt/mix_dev.json")
		var want []struct {
			ID            string
			Conversations []struct{ From, Value string }
		}
		whole(file, &want)
		got := read("sharegpt", file)
		require.Len(t, got, len(want))
		for i, w := range want {
			require.Equal(t, w.ID, got[i].ID)
			require.Len(t, got[i].Turns, len(w.Conversations))
			for k, turn := range w.Conversations {
				require.Equal(t, turn.Value, got[i].Turns[k].Text)
			}
		}
	})
}
