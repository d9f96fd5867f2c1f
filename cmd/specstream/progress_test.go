package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlainProgress(t *testing.T) {
	var out strings.Builder
	r := &reporter{w: &out, mode: "plain", every: time.Hour, shown: map[string]shown{}}
	for _, e := range []event{
		{Stage: "training"},
		{Stage: "lossless train", Step: 1, Steps: 3, Loss: 2.5},
		{Stage: "shared train", Step: 1, Steps: 3},
		{Stage: "lossless train", Step: 2, Steps: 3}, // not due yet
		{Stage: "shared train", Step: 2, Steps: 3},   // two at once do not show each other anew
		{Stage: "lossless train", Step: 3, Steps: 3},
		{Stage: "lossless train", Step: 3, Steps: 3}, // the end is shown once
		{Stage: "training"},
	} {
		r.report(e)
	}
	require.Equal(t, "training\nlossless train 1/3  loss 2.5000\nshared train 1/3\nlossless train 3/3\n", out.String())
}
