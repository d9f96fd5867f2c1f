package data

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream/internal/testdata"
)

// TestPlainChat: what is plain is taken, and nothing else.
func TestPlainChat(t *testing.T) {
	turns := `[{"from":"human","value":"a\u00e9\ud83d\ude00\"\\\/\b\f\n\r\t é中"},{"value":"b","from":"gpt"}]`
	for text, want := range map[string]bool{
		chatOne: true,
		`{"conversations":` + turns + `,"id":"x"}`:                                        true,
		" { \"id\" : \"x\" ,\n\"conversations\" : " + turns + "}":                         true,
		`{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a"}]}`: true,
		`{"conversations":[{"from":"gpt","value":"a"}]}`:                                  true, // skipped
		`{"conversations":[{"from":"human","value":""}]}`:                                 true, // bad

		`{"id":1,"conversations":` + turns + `}`:            false,
		`{"id":"x","id":"y","conversations":` + turns + `}`: false,
		`{"id":"x"}`:           false,
		`{"conversations":[]}`: false,
		`{"conversations":` + turns + `,"messages":[{"role":"user","content":"u"}]}`: false,
		`{"conversations":` + turns + `,"tools":""}`:                                 false,
		`{"conversations":` + turns + `}x`:                                           false,
		`{"Conversations":` + turns + `}`:                                            false,
		`{"conversations":[{"from":"Human","value":"u"}]}`:                           false,
		`{"conversations":[{"from":"human","value":"u","value":"v"}]}`:               false,
		`{"conversations":[{"from":"human","from":"human"}]}`:                        false,
		`{"conversations":[{"from":"human"}]}`:                                       false,
		`{"conversations":[{"from":"human","value":"u","x":1}]}`:                     false,
		`{"conversations":[{"from":"human","value":"\ud800"}]}`:                      false,
		`{"conversations":[{"from":"human","value":"\ud800\u0041"}]}`:                false,
		`{"conversations":[{"from":"human","value":"\x"}]}`:                          false,
		"{\"conversations\":[{\"from\":\"human\",\"value\":\"a\nb\"}]}":              false,
		"{\"conversations\":[{\"from\":\"human\",\"value\":\"a\xff\"}]}":             false,
		`{"conversations":[{"from":"human","value":"u"},]}`:                          false,
		`{"conversations":[{"from":"human","value":"u"}`:                             false,
		`{"conversations":[{"role":"user","value":"u"}]}`:                            false,
		`[]`: false, ``: false, `{`: false, `{}`: false,
	} {
		_, ok, _ := decodePlainChat(Raw{JSON: []byte(text)}, repeatedDrop)
		require.Equal(t, want, ok, text)
		sameAsAnyChat(t, []byte(text), repeatedDrop)
	}
}

// sameAsAnyChat requires of a plain conversation that the decoder for any makes
// the same of it.
func sameAsAnyChat(t *testing.T, text []byte, repeated string) (plain bool) {
	got, ok, err := decodePlainChat(Raw{JSON: text}, repeated)
	if !ok {
		return false
	}
	want, werr := decodeShareGPT(Raw{JSON: text}, repeated)
	require.Equal(t, werr, err, "%q", text)
	require.Equal(t, want, got, "%q", text)
	return true
}

// TestPlainChatOnRealData: most real conversations are plain, and decoded alike.
func TestPlainChatOnRealData(t *testing.T) {
	for _, file := range []string{"sharegpt/mix_dev.json", "sharegpt/moss.json.gz", "sharegpt/oasst_trees.json.gz", "sharegpt/messy/messy_made.json.gz"} {
		r, err := Open(t.Context(), formatNamed(t, "sharegpt"), testdata.Shared(t, file))
		require.NoError(t, err)
		plain, all := 0, 0
		for {
			raw, err := r.NextRaw()
			if err != nil {
				break
			}
			all++
			if sameAsAnyChat(t, raw.JSON, repeatedDrop) {
				plain++
			}
		}
		require.NoError(t, r.Close())
		require.Greater(t, plain, all/2, file)
		t.Logf("%s: %d of %d are plain", file, plain, all)
	}
}

func FuzzPlainChat(f *testing.F) {
	f.Add([]byte(chatOne), false)
	f.Add([]byte(`{"messages":[{"role":"system","content":" "},{"content":"u","role":"user"},{"role":"tool","content":"\ud83d\ude00"}]}`), true)
	f.Add([]byte(`{"id":"","conversations":[{"from":"gpt","value":"a"},{"from":"human","value":"\u0000"},{"from":"human","value":"b"},{"from":"gpt","value":"c"}]}`), true)
	f.Fuzz(func(t *testing.T, text []byte, merge bool) {
		repeated := repeatedDrop
		if merge {
			repeated = repeatedMerge
		}
		sameAsAnyChat(t, text, repeated)
	})
}
