//go:build !((darwin || freebsd || linux) && (amd64 || arm64))

package kernels

import "errors"

// blasLibrary is never made on this platform.
type blasLibrary struct{ path, version, core string }

func loadOpenBLAS() (*blasLibrary, error) {
	return nil, errors.New("loading a system BLAS is not supported on this platform")
}

func (*blasLibrary) gemm(bool, product) { panic("kernels: no BLAS library on this platform") }
