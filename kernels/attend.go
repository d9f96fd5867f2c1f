package kernels

// KVRun is a run of N consecutive keys and values of one head: key j is
// K[j*Stride:][:headDim], value j is V[j*Stride:][:headDim]. A KV cache laid
// out [position, kvHeads, headDim] has Stride = kvHeads·headDim.
type KVRun struct {
	K, V   []float32
	Stride int
	N      int
}

// AttendRow computes one query head's attention over the concatenation of the
// runs, out = softmax(scale·q·Kᵀ)·V; out and q have the head's dimension. The
// scores live in scratch, which must hold as many elements as there are keys.
// With no keys out is zero. Keys are visited in order, so the result depends on
// their sequence alone: not on how it is cut into runs, nor on other rows.
func AttendRow(out, q []float32, runs []KVRun, scale float32, scratch []float32) {
	hd := len(q)
	atLeast("AttendRow", "out", len(out), hd)
	out = out[:hd]
	total := 0
	for _, run := range runs {
		if run.N == 0 {
			continue
		}
		atLeast("AttendRow", "scratch", len(scratch), total+run.N)
		atLeast("AttendRow", "K", len(run.K), (run.N-1)*run.Stride+hd)
		atLeast("AttendRow", "V", len(run.V), (run.N-1)*run.Stride+hd)
		attendScores32(scratch[total:total+run.N], q, run.K, run.Stride, scale)
		total += run.N
	}
	clear(out)
	p := scratch[:total]
	_, sum := expShifted(p)
	if sum == 0 {
		return
	}
	for _, run := range runs {
		attendValues32(out, p[:run.N], run.V, run.Stride)
		p = p[run.N:]
	}
	scale32(out, 1/sum)
}
