package data

import (
	"encoding/json"
	"fmt"
)

var alpacaKeys = keysOf(false, "id", "instruction", "input", "output", "system", "history")

// alpacaRecord is an instruction, perhaps with an input, and its output. The
// rendering of them all that some files keep under "text" is ignored, as are
// other keys.
type alpacaRecord struct {
	ID          json.RawMessage `json:"id"`
	Instruction *string         `json:"instruction"`
	Input       *string         `json:"input"`
	Output      *string         `json:"output"`
	// System and History, of pairs [instruction, output] that came before, are
	// LLaMA-Factory's.
	System  *string    `json:"system"`
	History [][]string `json:"history"`
}

// decodeAlpaca makes a user turn of the instruction and, behind a blank line, the
// input, as chat templates want it. [AlpacaPrompt] has Stanford's own wording.
func decodeAlpaca(raw Raw) (Record, error) {
	var v alpacaRecord
	var r Record
	if err := decodeJSON(&r, raw, &v, alpacaKeys, checkAlpaca); err != nil {
		return Record{}, err
	}
	var err error
	if r.ID, err = idText("id", v.ID); err != nil {
		return Record{}, err
	}
	prompt, err := required("instruction", v.Instruction)
	if err != nil {
		return Record{}, err
	}
	output, err := completion("output", v.Output)
	if err != nil {
		return Record{}, err
	}
	r.Fields = map[string]string{"instruction": prompt, "input": ""}
	if v.Input != nil && !blank(*v.Input) {
		r.Fields["input"] = *v.Input
		prompt += "\n\n" + *v.Input
	}
	if v.System != nil && !blank(*v.System) {
		r.Turns = append(r.Turns, Turn{System, *v.System})
	}
	for i, pair := range v.History {
		at := fmt.Sprintf("history[%d]", i)
		if len(pair) != 2 {
			return Record{}, bad(BadType, at, "want a pair of instruction and output, got %d texts", len(pair))
		}
		if _, err := required(at+"[0]", &pair[0]); err != nil {
			return Record{}, err
		}
		if _, err := completion(at+"[1]", &pair[1]); err != nil {
			return Record{}, err
		}
		r.Turns = append(r.Turns, Turn{User, pair[0]}, Turn{Assistant, pair[1]})
	}
	r.Turns = append(r.Turns, Turn{User, prompt}, Turn{Assistant, output})
	return r, nil
}

// checkAlpaca names the field of the wrong type.
func checkAlpaca(value any) error {
	if err := stringFields(value, "", "instruction", "input", "output", "system"); err != nil {
		return err
	}
	history := value.(map[string]any)["history"]
	list, ok := history.([]any)
	if !ok && history != nil {
		return bad(BadType, "history", "want an array of pairs, got %s", jsonKind(history))
	}
	for i, p := range list {
		pair, ok := p.([]any)
		if !ok {
			return bad(BadType, fmt.Sprintf("history[%d]", i), "want a pair of instruction and output, got %s", jsonKind(p))
		}
		for j, text := range pair {
			if _, ok := text.(string); !ok {
				return bad(BadType, fmt.Sprintf("history[%d][%d]", i, j), "want a string, got %s", jsonKind(text))
			}
		}
	}
	return nil
}

// AlpacaPrompt is the prompt that Stanford Alpaca was trained with, up to where
// the output begins. input may be empty.
func AlpacaPrompt(instruction, input string) string {
	if input == "" {
		return "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n" +
			"### Instruction:\n" + instruction + "\n\n### Response:\n"
	}
	return "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.\n\n" +
		"### Instruction:\n" + instruction + "\n\n### Input:\n" + input + "\n\n### Response:\n"
}
