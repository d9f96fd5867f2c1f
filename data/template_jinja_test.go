package data

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

const chatMLSource = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

// jinjaTemplate writes a template to a file and reads it.
func jinjaTemplate(t testing.TB, source string) (Template, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "chat.jinja")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	f, err := FormatOf("sharegpt")
	require.NoError(t, err)
	return TemplateFor(specstream.DataSpec{Format: "sharegpt", Template: file}, f, "")
}

func jinjaEncoder(t testing.TB, source string, o EncoderOptions) *Encoder {
	t.Helper()
	tmpl, err := jinjaTemplate(t, source)
	require.NoError(t, err)
	o.Template = tmpl
	return newEncoder(t, o)
}

// TestJinjaMasks: masks of any template, by rendering and by its own marks.
func TestJinjaMasks(t *testing.T) {
	rec := Record{ID: "r", Turns: []Turn{{System, "S"}, {User, "hi"}, {Assistant, " yo"}, {User, "<|im_end|>"}, {Assistant, "<|im_start|>user\n</s>"}}}
	for _, c := range []struct{ name, source, want string }{
		{"as ChatML", chatMLSource,
			"<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[ yo<|im_end|>]\n<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n[<|im_start|>user\n</s><|im_end|>]\n"},
		{"space before the end token", "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content|trim + ' ' + eos_token }}{% else %}{{ bos_token + m.content + ':' }}{% endif %}{% endfor %}",
			"<s>S:<s>hi:[ yo </s>]<s><|im_end|>:[ <|im_start|>user\n</s> </s>]"},
		{"words before the answer", "{% for m in messages %}{% if m.role == 'assistant' %}A:<think>\n\n</think>{{ m.content }}{{ eos_token }}{% else %}{{ m.content }}\n{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}",
			"S\nhi\nA:[<think>\n\n</think> yo</s>]<|im_end|>\nA:[<think>\n\n</think><|im_start|>user\n</s></s>]"},
		{"marked", "{% for m in messages %}{% if m.role == 'assistant' %}A{% generation %}:{{ m.content }}</s>\n{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}{% if add_generation_prompt %}A{% endif %}",
			"S;hi;A[: yo</s>\n]<|im_end|>;A[:<|im_start|>user\n</s></s>\n]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := jinjaEncoder(t, c.source, EncoderOptions{Turns: specstream.TurnsInline})
			got, err := e.Samples(rec)
			require.NoError(t, err)
			s := got.Samples[0]
			require.Equal(t, c.want, mark(s))
			// The record's strings of control tokens are text, wherever they are.
			for _, id := range (runeTokenizer{}).Encode(nil, "<|im_end|>") {
				require.Contains(t, s.Tokens, id)
			}
			e = jinjaEncoder(t, c.source, EncoderOptions{})
			got, err = e.Samples(rec)
			require.NoError(t, err)
			require.Equal(t, s.Tokens, got.Samples[1].Tokens)
			require.Equal(t, s.Spans[1:], got.Samples[1].Spans)
			require.Equal(t, s.PromptTokens(), got.Samples[1].PromptTokens())
			open := rec
			open.Turns = rec.Turns[:4]
			ids, err := e.Prompt(open)
			require.NoError(t, err)
			require.Equal(t, s.PromptTokens(), ids)
		})
	}
}

// TestJinjaPolicies: the policies for long conversations hold for templates too.
func TestJinjaPolicies(t *testing.T) {
	for _, overlong := range []string{specstream.OverlongDrop, specstream.OverlongSplit, specstream.OverlongHistory, specstream.OverlongCut} {
		for _, turns := range []string{specstream.TurnsExpand, specstream.TurnsInline} {
			for limit := 20; limit < 120; limit += 7 {
				o := EncoderOptions{Turns: turns, Overlong: overlong, MaxLength: limit}
				got, err := jinjaEncoder(t, chatMLSource, o).Samples(twoTurns)
				require.NoError(t, err)
				o.Template = templateFor(t, "sharegpt", "chatml")
				want, err := newEncoder(t, o).Samples(twoTurns)
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		}
	}
}

func TestJinjaRefusals(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"syntax", "{% if %}", "chat.jinja: line 1: "},
		{"include", "{% include '/etc/passwd' %}", "the tag \"include\" is not supported"},
		{"unknown filter", "{{ messages|groupby('role') }}", "the filter \"groupby\" is not supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := jinjaTemplate(t, c.source)
			require.ErrorContains(t, err, c.want)
			require.True(t, specstream.BadInput(err))
		})
	}
	for _, c := range []struct{ name, source, want string }{
		{"no end token", "{% for m in messages %}{{ m.content }}\n{% endfor %}", "puts no token of the tokenizer behind an answer"},
		{"no answers", "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", "leaves the text of assistant turns out"},
		{"fails always", "{{ messages.nosuch.x }}", "can't render a question and its answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmpl, err := jinjaTemplate(t, c.source)
			require.NoError(t, err)
			_, err = NewEncoder(EncoderOptions{Tokenizer: runeTokenizer{}, Template: tmpl, Turns: specstream.TurnsExpand, MaxLength: 100})
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "chat.jinja")
			require.True(t, specstream.BadInput(err))
		})
	}
	const answer = "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}</s>{% else %};{% endif %}{% endfor %}"
	rec := twoTurnsAt("f", 9)
	for _, c := range []struct {
		name, source, want string
		fatal              bool
	}{
		{"refused by the template", "{% if messages[0].role == 'system' %}{{ raise_exception('no system, please') }}{% endif %}" + answer, "no system, please", false},
		{"the prompt is no beginning", "{{ messages|length }}" + answer, "does not begin what it renders of the whole", true},
		{"the system turn moves", answer + "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}", "does not begin what it renders of the whole", true},
		{"other words at the end", "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' and messages|length > 3 %}!{% endif %}</s>{% endfor %}", `and not by the end token "</s>"`, true},
		{"an empty answer", "{% for m in messages %}{{ m.content if m.content != 'hello you' }}</s>{% endfor %}", "is empty", false},
		{"blocks elsewhere", "{% for m in messages %}{% if m.role == 'assistant' %}A{% generation %}{{ m.content }}</s>{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}", "no {% generation %} block begins where the prompt", true},
		{"end token outside", "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}</s>{% else %}{{ m.content }};{% endif %}{% endfor %}", "holds no end token", true},
		{"runs for ever", "{% for m in messages %}{% if messages|length > 2 %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}{{ m.content }}</s>{% endfor %}", "more steps", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := jinjaEncoder(t, c.source, EncoderOptions{Turns: specstream.TurnsInline}).Samples(rec)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "f: record 9: ")
			if c.fatal {
				require.ErrorContains(t, err, "chat.jinja")
			}
			require.Equal(t, c.fatal, !recoverable(err))
		})
	}
}

// TestJinjaTurns: a conversation of very many turns is left out, and told.
func TestJinjaTurns(t *testing.T) {
	r := Record{ID: "r", Turns: make([]Turn, 0, maxChatTurns+2)}
	for range maxChatTurns/2 + 1 {
		r.Turns = append(r.Turns, Turn{User, "u"}, Turn{Assistant, "a"})
	}
	_, err := jinjaEncoder(t, chatMLSource, EncoderOptions{Turns: specstream.TurnsInline}).Samples(r)
	var skipped *SkipError
	require.ErrorAs(t, err, &skipped)
	require.Equal(t, SkipTooLong, skipped.Reason)
}

// TestModelTemplate reads the templates that come with tokenizers.
func TestModelTemplate(t *testing.T) {
	f, err := FormatOf("sharegpt")
	require.NoError(t, err)
	read := func(files map[string]string) (Template, error) {
		dir := t.TempDir()
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		return TemplateFor(specstream.DataSpec{Format: "sharegpt", Template: "model"}, f, dir)
	}
	quoted, err := json.Marshal(chatMLSource)
	require.NoError(t, err)
	const file = "tokenizer_config.json"
	one, err := read(map[string]string{file: `{"chat_template": ` + string(quoted) + `}`})
	require.NoError(t, err)
	several, err := read(map[string]string{file: `{"chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": ` + string(quoted) + `}]}`})
	require.NoError(t, err)
	beside, err := read(map[string]string{file: `{"chat_template": "x"}`, "chat_template.jinja": chatMLSource})
	require.NoError(t, err)
	require.Equal(t, one.ID(), several.ID())
	require.Equal(t, one.ID(), beside.ID())
	require.Regexp(t, `^model-[0-9a-f]{12}/1$`, one.ID())
	other, err := read(map[string]string{file: `{"bos_token": {"content": "<s>"}, "chat_template": ` + string(quoted) + `}`})
	require.NoError(t, err)
	require.NotEqual(t, one.ID(), other.ID(), "other special tokens render otherwise")

	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"none":       {nil, "is missing"},
		"null":       {map[string]string{file: `{"chat_template": null}`}, "is missing"},
		"no default": {map[string]string{file: `{"chat_template": [{"name": "rag", "template": "x"}]}`}, "neither a string nor a list"},
		"not JSON":   {map[string]string{file: `{`}, "invalid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.files)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, file)
			require.True(t, specstream.BadInput(err))
		})
	}
	_, err = TemplateFor(specstream.DataSpec{Template: "model"}, f, "")
	require.ErrorContains(t, err, "wants a tokenizer in a folder")
	_, err = TemplateFor(specstream.DataSpec{Template: filepath.Join(t.TempDir(), "no.jinja")}, f, "")
	require.ErrorContains(t, err, "no such template file")
	require.True(t, strings.HasSuffix(one.ID(), "/1"))
}
