package model

// StreamEmbeddingsName names P, [γ, h].
const StreamEmbeddingsName = nameStreamEmbeddings

// LoRAName names one half ("A" or "B") of the LoRA pair of a layer's projection.
func LoRAName(layer int, target, half string) string {
	return loraName(layer, target) + halfSuffix(half)
}

// StreamAdapterName names one half of a layer's stream adapter.
func StreamAdapterName(layer int, half string) string {
	return streamAdapterName(layer) + halfSuffix(half)
}

// PrunerName names one half of the pruning adapter o_θ.
func PrunerName(half string) string { return namePruner + halfSuffix(half) }

// StreamInitName names one half of a low-rank f_η.
func StreamInitName(half string) string { return nameStreamInit + halfSuffix(half) }

func halfSuffix(half string) string {
	if half == "A" {
		return suffixA
	}
	return suffixB
}
