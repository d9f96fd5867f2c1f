package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/specstream/specstream"
)

// Fields of config.json by what they mean to the arithmetic. A field in none of
// these lists may change what the model computes, so unless it is null, false, zero
// or empty it is refused rather than passed over.
var (
	commonFields = fieldSet(`architectures model_type hidden_size num_hidden_layers num_attention_heads vocab_size
		max_position_embeddings tie_word_embeddings bos_token_id eos_token_id quantization_config`)
	llamaFields = fieldSet(`intermediate_size num_key_value_heads head_dim rms_norm_eps rope_theta rope_scaling rope_parameters hidden_act
		attention_bias mlp_bias partial_rotary_factor sliding_window layer_types`)
	windowLayerFields = fieldSet(`use_sliding_window max_window_layers`)
	optFields         = fieldSet(`ffn_dim activation_function do_layer_norm_before enable_bias layer_norm_elementwise_affine
		_remove_final_layer_norm word_embed_proj_dim`)

	// inertFields change nothing: initialisation, dropout (adapters are trained on
	// the base as it decodes), generation settings, bookkeeping of transformers.
	inertFields = fieldSet(`_name_or_path _commit_hash _attn_implementation _attn_implementation_autoset _attn_implementation_internal _flash_attn_2_enabled
		attn_implementation auto_map transformers_version transformers_weights torch_dtype dtype torchscript use_bfloat16 use_cache tf_legacy_loss tokenizer_class
		pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
		initializer_range init_std initializer_factor attention_dropout activation_dropout hidden_dropout resid_pdrop embd_pdrop dropout layerdrop
		pretraining_tp max_sequence_length original_max_position_embeddings chunk_size_feed_forward gradient_checkpointing is_decoder
		output_attentions output_hidden_states output_scores return_dict return_dict_in_generate
		bad_words_ids begin_suppress_tokens suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
		exponential_decay_length_penalty length_penalty max_length min_length max_new_tokens no_repeat_ngram_size num_beam_groups num_beams
		num_return_sequences remove_invalid_values repetition_penalty temperature top_k top_p typical_p
		finetuning_task id2label label2id prefix problem_type task_specific_params
		is_llama_config transformers.js_config unsloth_version unsloth_fixed`)
)

func fieldSet(names string) map[string]bool {
	set := map[string]bool{}
	for _, n := range strings.Fields(names) {
		set[n] = true
	}
	return set
}

// checkFields refuses fields that the architecture is not known to have.
func checkFields(fields map[string]json.RawMessage, architecture string) error {
	f := families[architecture]
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		opt := f.traits.LearnedPositions
		switch {
		case commonFields[name], inertFields[name], !opt && llamaFields[name], opt && optFields[name], f.windowLayers && windowLayerFields[name]:
			if name == "sliding_window" && !f.window && !absent(fields[name]) {
				return specstream.Invalid(name, "a %s has none", architecture)
			}
		case neutral(fields[name]): // it asks for nothing
		default:
			return &specstream.InputError{Field: name, Reason: fmt.Sprintf("a %s has no such field that is known here, and it may change what the base computes", architecture),
				Hint: "remove it from config.json if it does not"}
		}
	}
	return nil
}

// neutral reports whether a value is null, false, zero or empty.
func neutral(v json.RawMessage) bool {
	switch string(bytes.TrimSpace(v)) {
	case "null", "false", "0", `""`, "[]", "{}":
		return true
	}
	return false
}
