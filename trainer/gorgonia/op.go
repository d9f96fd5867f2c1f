package gorgonia

import (
	"fmt"
	"hash"
	"hash/fnv"
	"sync/atomic"
	"unsafe"

	"github.com/chewxy/hm"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/specstream/specstream/kernels"
)

// opCount numbers operations. Gorgonia merges nodes of equal 32-bit hash without
// a word, so every instance hashes to its own name.
var opCount atomic.Int64

// observe, when set by a test, is called with the name of every operation that
// the tape machine executes.
var observe func(name string)

// base is what gorgonia asks of every operation. All our values are matrices of
// one float type; an operation owns its output and fills it anew at every run.
type base[T kernels.Float] struct {
	name  string
	id    int64
	arity int
	shape tensor.Shape
	out   *tensor.Dense
}

func newBase[T kernels.Float](name string, arity int, shape tensor.Shape) base[T] {
	return base[T]{name: name, id: opCount.Add(1), arity: arity, shape: shape}
}

func (o *base[T]) Arity() int { return o.arity }

// Type is Matrix a → … → Matrix a.
func (o *base[T]) Type() hm.Type {
	m := G.TensorType{Dims: 2, Of: hm.TypeVariable('a')}
	ts := make([]hm.Type, o.arity+1)
	for i := range ts {
		ts[i] = m
	}
	return hm.NewFnType(ts...)
}

func (o *base[T]) InferShape(...G.DimSizer) (tensor.Shape, error) { return o.shape.Clone(), nil }
func (o *base[T]) ReturnsPtr() bool                               { return false }
func (o *base[T]) CallsExtern() bool                              { return false }
func (o *base[T]) OverwritesInput() int                           { return -1 }
func (o *base[T]) WriteHash(h hash.Hash)                          { fmt.Fprint(h, o.String()) }
func (o *base[T]) String() string                                 { return fmt.Sprintf("%s#%d", o.name, o.id) }
func (o *base[T]) Hashcode() uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}

// output returns the operation's own output tensor and its backing slice.
func (o *base[T]) output() (*tensor.Dense, []T) {
	if o.out == nil {
		o.out = dense(make([]T, o.shape.TotalSize()), o.shape...)
	}
	return o.out, o.out.Data().([]T)
}

// run calls f with the inputs' backing slices. A panic inside the tape machine
// would take the whole process down, so it becomes an error.
func (o *base[T]) run(in []G.Value, f func(in [][]T)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", o, p)
		}
	}()
	if observe != nil {
		observe(o.name)
	}
	xs := make([][]T, len(in))
	for i, v := range in {
		xs[i] = v.Data().([]T)
	}
	f(xs)
	return nil
}

// fused is an operation with a hand-written backward. Inputs and output are
// matrices of fixed capacity; how many rows of them are live in a run is the
// business of forward and backward, which read it from the frame they share.
type fused[T kernels.Float] struct {
	base[T]
	b *builder[T]
	// diff says which inputs need a gradient.
	diff []bool
	// pass is the input whose gradient is the output's own (a residual), or -1.
	pass    int
	forward func(out []T, in [][]T)
	// backward fills din[i] for every differentiable input but pass; where input
	// i is a parameter it adds to din[i], the parameter's own gradient.
	backward func(din [][]T, in [][]T, out, dout []T)
	// into, where set, is the branch whose gradient the first input's is added
	// to in place; din[0] is then that gradient.
	into *skip[T]
}

// skip is a residual branch around some operations of a layer. Gorgonia would
// add the two gradients of the branch's origin in a node of its own, through a
// fresh tensor at every run; here the operation that opens the branch (a norm)
// adds its gradient to the branch's in place. The chain of operations between
// the two ends keeps them in order.
type skip[T kernels.Float] struct {
	x  []T // the branch's value, set by the forward that opens it
	dy []T // its gradient, set by the backward of the operation that closes it
}

// slot ties a parameter's node to the parameter it stands for at the moment.
type slot[T kernels.Float] struct{ p *param[T] }

// apply adds the operation to the graph. rows × cols is the output's shape.
func (o *fused[T]) apply(b *builder[T], name string, rows, cols int, in ...*G.Node) *G.Node {
	o.b, o.base = b, newBase[T](name, len(in), tensor.Shape{rows, cols})
	return G.Must(G.ApplyOp(o, in...))
}

// Do runs the forward.
func (o *fused[T]) Do(in ...G.Value) (G.Value, error) {
	t, out := o.output()
	err := o.run(in, func(xs [][]T) { o.forward(out, xs) })
	return t, err
}

// DiffWRT says which inputs are differentiable.
func (o *fused[T]) DiffWRT(int) []bool { return o.diff }

// SymDiff adds one node that computes every gradient, which it returns as the
// gradient of the first input that needs one, and a node for each other input
// that picks its gradient up. (A gorgonia node has one output.)
func (o *fused[T]) SymDiff(in G.Nodes, out, grad *G.Node) (G.Nodes, error) {
	res := make(G.Nodes, len(in))
	d := &gradient[T]{of: o, din: make([][]T, len(in)), slots: make([]*slot[T], len(in)), first: -1}
	var lead *G.Node
	for i := range in {
		switch {
		case !o.diff[i]:
			continue
		case i == o.pass:
			res[i] = grad
			continue
		}
		shape := in[i].Shape().Clone()
		d.slots[i] = o.b.slots[in[i]]
		if lead == nil {
			d.base, d.first = newBase[T]("d"+o.name, len(in)+2, shape), i
			n, err := G.ApplyOp(d, append(append(G.Nodes{}, in...), out, grad)...)
			if err != nil {
				return nil, err
			}
			lead, res[i] = n, n
			continue
		}
		p := &picked[T]{base: newBase[T](fmt.Sprintf("d%s.%d", o.name, i), 1, shape), of: d.slots[i]}
		if p.of == nil {
			return nil, fmt.Errorf("%s: input %d needs a gradient, but is neither the first input nor a parameter", o.name, i)
		}
		n, err := G.ApplyOp(p, lead)
		if err != nil {
			return nil, err
		}
		res[i] = n
	}
	return res, nil
}

// gradient computes all gradients of a fused operation. Its inputs are the
// operation's inputs, its output and the output's gradient.
type gradient[T kernels.Float] struct {
	base[T]
	of    *fused[T]
	din   [][]T
	slots []*slot[T] // of the inputs that are parameters
	first int
}

// Do runs the backward. The result is the gradient of the first differentiable
// input: of rows, in a buffer that operations of the same name share, since the
// backward of a graph is a chain in which each is read before the next of the
// same name in the layer below writes; of a parameter, its own.
func (d *gradient[T]) Do(in ...G.Value) (G.Value, error) {
	err := d.run(in, func(xs [][]T) {
		for i, s := range d.slots {
			if s != nil {
				d.din[i] = s.p.grad
			}
		}
		if d.slots[d.first] == nil {
			if d.of.into != nil {
				d.din[d.first] = d.of.into.dy
			} else {
				d.din[d.first] = d.of.b.shared(d.name, d.shape.TotalSize())
			}
		}
		n := len(xs) - 2
		d.of.backward(d.din, xs[:n], xs[n], xs[n+1])
	})
	if err != nil {
		return nil, err
	}
	return d.tensor(d.din[d.first]), nil
}

// tensor wraps data, which is nearly always that of the run before.
func (o *base[T]) tensor(data []T) *tensor.Dense {
	if o.out == nil || unsafe.SliceData(o.out.Data().([]T)) != unsafe.SliceData(data) {
		o.out = dense(data[:o.shape.TotalSize()], o.shape...)
	}
	return o.out
}

// picked yields the gradient of a parameter that a [gradient] node computed
// beside its output.
type picked[T kernels.Float] struct {
	base[T]
	of *slot[T]
}

// Do returns the gradient without copying it.
func (p *picked[T]) Do(in ...G.Value) (G.Value, error) {
	return p.tensor(p.of.p.grad), p.run(in, func([][]T) {})
}

// dense wraps a slice as a tensor without copying it.
func dense[T kernels.Float](data []T, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
}

// matrix adds an input node.
func matrix[T kernels.Float](g *G.ExprGraph, name string, data []T, rows, cols int) *G.Node {
	return G.NewMatrix(g, dtype[T](), G.WithShape(rows, cols), G.WithName(fmt.Sprintf("%s#%d", name, opCount.Add(1))), G.WithValue(dense(data, rows, cols)))
}

func dtype[T kernels.Float]() tensor.Dtype {
	var zero T
	if _, ok := any(zero).(float64); ok {
		return tensor.Float64
	}
	return tensor.Float32
}
