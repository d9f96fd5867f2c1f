//go:build (darwin || freebsd || linux) && (amd64 || arm64)

package kernels

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// blasLibrary is a loaded OpenBLAS with 32-bit integers. The Fortran entry
// points take every argument by address, so that a call needs no reflection.
type blasLibrary struct {
	handle        uintptr
	path, version string
	core          string // the kernel family it chose, such as "SkylakeX"
	sgemm, dgemm  uintptr
}

// blasNames are tried in order: the loader's search path first, then where
// distributions and Homebrew put the library.
var blasNames = []string{
	"libopenblas.so.0", "libopenblas.so",
	"/usr/lib/*-linux-gnu/libopenblas.so.0", "/usr/lib/*-linux-gnu/openblas-*/libopenblas.so.0",
	"/usr/lib64/libopenblas.so.0", "/usr/lib/libopenblas.so.0", "/usr/local/lib/libopenblas.so*", "/opt/OpenBLAS/lib/libopenblas.so*",
	"libopenblas.dylib", "/opt/homebrew/opt/openblas/lib/libopenblas.dylib", "/usr/local/opt/openblas/lib/libopenblas.dylib",
}

// coreType is the environment variable with which OpenBLAS lets its kernel
// family be chosen, read once when it is loaded.
const coreType = "OPENBLAS_CORETYPE"

// narrow reports whether the library runs narrower vectors than this CPU has:
// releases older than the CPU take it for a Haswell (256 bits).
func (l *blasLibrary) narrow() bool {
	if bestLevel != levelAVX512 {
		return false
	}
	switch strings.ToLower(l.core) {
	case "skylakex", "cooperlake", "sapphirerapids":
		return false
	}
	return true
}

// loadOpenBLAS finds the library once a process.
var loadOpenBLAS = sync.OnceValues(func() (*blasLibrary, error) {
	var failures []error
	for _, name := range blasNames {
		paths := []string{name}
		if strings.HasPrefix(name, "/") {
			found, err := filepath.Glob(name)
			if err != nil {
				return nil, fmt.Errorf("search OpenBLAS at %s: %w", name, err)
			}
			paths = found
		}
		for _, path := range paths {
			lib, err := openBLAS(path)
			if err == nil && lib.narrow() && os.Getenv(coreType) == "" {
				lib, err = lib.widen()
			}
			if err == nil {
				return lib, nil
			}
			failures = append(failures, err)
		}
	}
	return nil, fmt.Errorf("load OpenBLAS: %w", errors.Join(failures...))
})

// widen loads the library again with its 512-bit kernels chosen.
func (l *blasLibrary) widen() (*blasLibrary, error) {
	setenv, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil {
		return l, nil // not a libc that can; the narrower kernels do
	}
	name, value := append([]byte(coreType), 0), []byte("SkylakeX\x00")
	purego.SyscallN(setenv, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&value[0])), 1)
	runtime.KeepAlive(name)
	runtime.KeepAlive(value)
	if err := purego.Dlclose(l.handle); err != nil {
		return nil, fmt.Errorf("%s: %w", l.path, err)
	}
	return openBLAS(l.path)
}

func openBLAS(path string) (*blasLibrary, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	lib := &blasLibrary{handle: handle, path: path}
	var setThreads, config, core uintptr
	for name, target := range map[string]*uintptr{
		"sgemm_": &lib.sgemm, "dgemm_": &lib.dgemm,
		"openblas_set_num_threads": &setThreads, "openblas_get_config": &config, "openblas_get_corename": &core,
	} {
		if *target, err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	// Parallelism is ours: OpenBLAS's own threads spin between calls, and the
	// result would depend on how many there are.
	purego.SyscallN(setThreads, 1)
	address, _, _ := purego.SyscallN(config)
	coreName, _, _ := purego.SyscallN(core)
	lib.core = cString(coreName)
	description := strings.Fields(cString(address)) // "OpenBLAS 0.3.21 NO_LAPACK ..."
	for i, word := range description {
		if word == "USE64BITINT" {
			return nil, fmt.Errorf("%s: has 64-bit integers, 32-bit ones are needed", path)
		}
		if i == 1 {
			lib.version = word
		}
	}
	return lib, nil
}

// cString copies a NUL-terminated string of at most 4096 bytes.
func cString(address uintptr) string {
	if address == 0 {
		return ""
	}
	base := *(*unsafe.Pointer)(unsafe.Pointer(&address)) // memory of C: the collector does not move it
	for n := range 4096 {
		if *(*byte)(unsafe.Add(base, n)) == 0 {
			return string(unsafe.Slice((*byte)(base), n))
		}
	}
	return ""
}

// blasArgs are the scalar arguments of a call. They live on the heap: the
// library gets their addresses, and goroutine stacks move.
type blasArgs struct {
	transA, transB         byte
	m, n, k, lda, ldb, ldc int32
	alpha32, beta32        float32
	alpha64, beta64        float64
}

var blasArgsPool = sync.Pool{New: func() any { return new(blasArgs) }}

// Tiles of C handed to one call. The cut depends on the shape alone, so the
// result does not depend on the number of cores.
const (
	blasRows = 256
	blasCols = 512
)

func (l *blasLibrary) gemm(parallel bool, p product) {
	if max(p.m, p.n, p.k, p.lda, p.ldb, p.ldc) > math.MaxInt32 {
		panic(fmt.Sprintf("kernels: Gemm: a size of m=%d n=%d k=%d lda=%d ldb=%d ldc=%d is beyond OpenBLAS's 32-bit integers", p.m, p.n, p.k, p.lda, p.ldb, p.ldc))
	}
	if !parallel || p.m*p.n*p.k < parallelWork {
		l.call(p)
		return
	}
	rows, cols := blasRows, blasCols
	for rows > 32 && ((p.m+rows-1)/rows)*((p.n+cols-1)/cols) < 8 {
		rows /= 2
	}
	for cols > 64 && ((p.m+rows-1)/rows)*((p.n+cols-1)/cols) < 8 {
		cols /= 2
	}
	across := (p.n + cols - 1) / cols
	Parallel((p.m+rows-1)/rows*across, func(t int) {
		i, j := t/across*rows, t%across*cols
		l.call(p.at(i, min(rows, p.m-i), j, min(cols, p.n-j)))
	})
}

// call computes one tile. Fortran's matrices are column-major: the row-major
// C = op(A)·op(B) is their Cᵀ = op(B)ᵀ·op(A)ᵀ, so the operands change places.
func (l *blasLibrary) call(p product) {
	args := blasArgsPool.Get().(*blasArgs)
	*args = blasArgs{
		transA: 'N', transB: 'N', m: int32(p.m), n: int32(p.n), k: int32(p.k),
		lda: int32(p.lda), ldb: int32(p.ldb), ldc: int32(p.ldc),
		alpha32: float32(p.alpha), beta32: float32(p.beta), alpha64: p.alpha, beta64: p.beta,
	}
	if p.transA {
		args.transA = 'T'
	}
	if p.transB {
		args.transB = 'T'
	}
	function, alpha, beta := l.sgemm, unsafe.Pointer(&args.alpha32), unsafe.Pointer(&args.beta32)
	if p.double {
		function, alpha, beta = l.dgemm, unsafe.Pointer(&args.alpha64), unsafe.Pointer(&args.beta64)
	}
	purego.SyscallN(function,
		uintptr(unsafe.Pointer(&args.transB)), uintptr(unsafe.Pointer(&args.transA)),
		uintptr(unsafe.Pointer(&args.n)), uintptr(unsafe.Pointer(&args.m)), uintptr(unsafe.Pointer(&args.k)),
		uintptr(alpha), uintptr(p.b), uintptr(unsafe.Pointer(&args.ldb)),
		uintptr(p.a), uintptr(unsafe.Pointer(&args.lda)),
		uintptr(beta), uintptr(p.c), uintptr(unsafe.Pointer(&args.ldc)),
		1, 1) // lengths of the two strings, which Fortran compilers pass last
	runtime.KeepAlive(p)
	runtime.KeepAlive(args)
	blasArgsPool.Put(args)
}
