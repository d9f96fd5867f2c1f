package checkpoints

import (
	"context"
	"io"
)

// Seal and PutPieces are shown to the tests outside the package.
var Seal = seal

func (r *Repo) PutPieces(ctx context.Context, f io.Reader, size, piece int64) (File, error) {
	return r.putPieces(ctx, f, size, piece)
}

const (
	ZeroSum = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	Marker  = marker
)
