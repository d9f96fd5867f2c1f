package data

import (
	"github.com/specstream/specstream/data/jinja"
)

// family is a chat format rendered without Jinja.
type family struct {
	id      string
	end     string                     // end token of completions; "" is the tokenizer's
	tokens  []string                   // further control tokens the tokenizer must have
	variant func(tok Tokenizer) family // chooses by the tokenizer; may be nil
	render  func(p *pieces, turns []Turn) error
}

func (f family) ID() string { return f.id }

func (f family) Render(r Record, _ bool) ([]Piece, error) {
	if len(r.Turns) == 0 || len(r.Turns) == 1 && r.Turns[0].Role == System {
		return nil, bad(BadEmptyRecord, "", "has no user turn")
	}
	p := make(pieces, 0, 4*len(r.Turns)+2)
	err := f.render(&p, r.Turns)
	return p, err
}

// families are the native templates, by name. What each renders is held to
// transformers' by testdata/make_templates.py.
var families = map[string]family{
	"vicuna":  {id: "vicuna/2", render: vicuna},
	"llama2":  {id: "llama2/1", render: llama2},
	"llama3":  {id: "llama3/1", end: "<|eot_id|>", tokens: []string{"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"}, render: llama3},
	"mistral": {id: "mistral/1", render: mistral, variant: mistralVariant},
	"phi3":    {id: "phi3/1", end: "<|end|>", tokens: []string{"<|user|>", "<|assistant|>"}, render: phi3},
	"chatml":  {id: "chatml/1", end: "<|im_end|>", tokens: []string{"<|im_start|>"}, render: chatml},
}

// VicunaSystem is the system message Vicuna 1.1 was trained with.
const VicunaSystem = "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions."

// QwenSystem is the system message of Qwen2.5's template.
const QwenSystem = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

// alternating checks what most templates refuse: user and assistant must take
// turns, user first.
func alternating(turns []Turn) error {
	for i, t := range turns {
		if (t.Role == User) != (i%2 == 0) || t.Role == System {
			return bad(BadRole, "", "turn %d: user and assistant turns must alternate, user first", i+1)
		}
	}
	return nil
}

// withoutSystem takes the system turn from the front.
func withoutSystem(turns []Turn) (system string, has bool, rest []Turn) {
	if turns[0].Role == System {
		return turns[0].Text, true, turns[1:]
	}
	return "", false, turns
}

// vicuna is FastChat's conversation "vicuna_v1.1":
//
//	<s>{system} USER: {user} ASSISTANT: {assistant}</s>USER: …
func vicuna(p *pieces, turns []Turn) error {
	system, has, turns := withoutSystem(turns)
	if err := alternating(turns); err != nil {
		return err
	}
	p.token(TokenBegin)
	if has {
		p.said(system)
	} else {
		p.own(VicunaSystem)
	}
	p.own(" ")
	for _, t := range turns {
		if t.Role == Assistant {
			p.answer(" ", t.Text, "", "")
			continue
		}
		p.own("USER: ")
		p.said(t.Text)
		p.own(" ASSISTANT:")
	}
	return nil
}

// llama2 is that of meta-llama/Llama-2-*-chat-hf.
func llama2(p *pieces, turns []Turn) error {
	system, has, turns := withoutSystem(turns)
	if err := alternating(turns); err != nil {
		return err
	}
	for i, t := range turns {
		if t.Role == Assistant {
			p.answer(" ", jinja.Strip(t.Text), " ", "")
			continue
		}
		p.token(TokenBegin)
		p.own("[INST] ")
		said := jinja.Strip(t.Text)
		if i == 0 && has {
			// The template strips the system turn and the user turn as one.
			said = jinja.StripRight(t.Text)
			p.own("<<SYS>>\n")
			p.said(system)
			p.own("\n<</SYS>>")
			if said != "" {
				p.own("\n\n")
			}
		}
		p.said(said)
		p.own(" [/INST]")
	}
	return nil
}

// llama3 is that of meta-llama/Meta-Llama-3-*-Instruct.
func llama3(p *pieces, turns []Turn) error {
	p.own("<|begin_of_text|>")
	header := func(r Role) { p.own("<|start_header_id|>" + string(r) + "<|end_header_id|>\n\n") }
	for _, t := range turns {
		header(t.Role)
		if t.Role == Assistant {
			p.answer("", jinja.Strip(t.Text), "", "<|eot_id|>")
			continue
		}
		p.said(jinja.Strip(t.Text))
		p.own("<|eot_id|>")
	}
	if turns[len(turns)-1].Role != Assistant {
		header(Assistant)
	}
	return nil
}

// mistral is the first template of mistralai/Mistral-7B-Instruct-v0.1; it knows
// no system turn.
func mistral(p *pieces, turns []Turn) error { return mistralTurns(p, turns, false) }

// mistralV3 is that of mistralai/Mistral-7B-Instruct-v0.3. It puts the system
// turn into the last turn if that is the user's and leaves it out otherwise, so
// that no prompt with one begins the text trained on: such records are refused.
func mistralV3(p *pieces, turns []Turn) error { return mistralTurns(p, turns, true) }

func mistralTurns(p *pieces, turns []Turn, v3 bool) error {
	if turns[0].Role == System {
		return skip(SkipSystem, "", "the Mistral templates have no place for a system turn")
	}
	if err := alternating(turns); err != nil {
		return err
	}
	p.token(TokenBegin)
	for _, t := range turns {
		switch {
		case t.Role == User:
			p.own("[INST] ")
			p.said(t.Text)
			if v3 {
				p.own("[/INST]")
			} else {
				p.own(" [/INST]")
			}
		case v3:
			p.answer(" ", jinja.Strip(t.Text), "", "")
		default:
			p.answer("", t.Text, "", "")
			p.own(" ")
		}
	}
	return nil
}

func mistralVariant(tok Tokenizer) family {
	if isControl(tok, "[INST]") {
		return family{id: "mistral/1", render: mistralV3}
	}
	return family{id: "mistral/1", render: mistral}
}

// phi3 is that of microsoft/Phi-3-mini-*-instruct. Behind a conversation that
// ends with an answer it puts the tokenizer's end token, which no loss is on:
// a model that writes <|end|> is done.
func phi3(p *pieces, turns []Turn) error {
	for _, t := range turns {
		p.own("<|" + string(t.Role) + "|>\n")
		if t.Role == Assistant {
			p.answer("", t.Text, "", "<|end|>")
		} else {
			p.said(t.Text)
			p.own("<|end|>")
		}
		p.own("\n")
	}
	if turns[len(turns)-1].Role == Assistant {
		p.token(TokenEnd)
	} else {
		p.own("<|assistant|>\n")
	}
	return nil
}

// chatml is that of Qwen/Qwen2.5-*-Instruct.
func chatml(p *pieces, turns []Turn) error {
	if turns[0].Role != System {
		p.own("<|im_start|>system\n" + QwenSystem + "<|im_end|>\n")
	}
	for _, t := range turns {
		p.own("<|im_start|>" + string(t.Role) + "\n")
		if t.Role == Assistant {
			p.answer("", t.Text, "", "<|im_end|>")
		} else {
			p.said(t.Text)
			p.own("<|im_end|>")
		}
		p.own("\n")
	}
	if turns[len(turns)-1].Role != Assistant {
		p.own("<|im_start|>assistant\n")
	}
	return nil
}
