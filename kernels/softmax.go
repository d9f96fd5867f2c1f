package kernels

import (
	"fmt"
	"math"
)

// SoftmaxInPlace replaces x by its soft-max. It returns the maximum of x and
// sum = Σ exp(x[i]-max), so that log-sum-exp is max + log(sum). A row of -Inf
// alone (everything masked) becomes zeros with max = -Inf and sum = 0; NaN
// anywhere makes the sum NaN. The result depends on x alone.
func SoftmaxInPlace[T Float](x []T) (max, sum T) {
	max, sum = expShifted(x)
	if sum != 0 {
		Scale(x, 1/sum)
	}
	return max, sum
}

// expShifted does x[i] = exp(x[i]-max) and returns max and the sum; see
// [SoftmaxInPlace] for rows of -Inf and NaN.
func expShifted[T Float](x []T) (max, sum T) {
	max = maxOf(x)
	if !math.IsInf(float64(max), -1) {
		return max, expSum(x, max)
	}
	// Nothing above -Inf: masked entries, NaN, or no entries.
	for i, v := range x {
		if v != v {
			sum = v
			continue
		}
		x[i] = 0
	}
	return max, sum
}

// Max returns the largest element of x, which is not empty; NaN where one is NaN.
func Max[T Float](x []T) T { return maxOf(x) }

// ExpSum does x[i] = exp(x[i]-shift) and returns the sum: with shift the maximum
// it is the first half of a soft-max.
func ExpSum[T Float](x []T, shift T) T { return expSum(x, shift) }

// SoftmaxBackward turns the gradient d of a soft-max's output p into that of its
// input, d[i] = p[i]·(d[i]-delta), with delta = Σ p[j]·d[j].
func SoftmaxBackward[T Float](d, p []T, delta T) {
	atLeast("SoftmaxBackward", "p", len(p), len(d))
	if d32, ok := single(d); ok {
		p32, _ := single(p)
		softmaxBack32(d32, p32, float32(delta))
		return
	}
	softmaxBackGo(d, p, delta)
}

// CrossEntropyRows computes soft-max cross-entropy and its gradient on a chunk
// of logits [rows, v], in place, so that no second tensor of that size exists.
// For a row r with labels[r] >= 0 and p the soft-max of its logits:
//
//	loss[r]   = -log p[labels[r]]                      (float64, natural log)
//	logits[r] = scale[r]·(p - onehot(labels[r]))       (dL/dlogits for L = Σ scale·loss)
//	hit[r]    = labels[r] is the argmax, ties going to the lowest id
//
// Rows with a negative label are zeroed, with loss 0 and hit false. hit may be
// nil. A label that is not below v panics. Rows run in parallel; a row's result
// depends on that row alone.
func CrossEntropyRows[T Float](logits []T, rows, v int, labels []int32, scale []T, loss []float64, hit []bool) {
	atLeast("CrossEntropyRows", "logits", len(logits), rows*v)
	atLeast("CrossEntropyRows", "labels", len(labels), rows)
	atLeast("CrossEntropyRows", "scale", len(scale), rows)
	atLeast("CrossEntropyRows", "loss", len(loss), rows)
	if hit != nil {
		atLeast("CrossEntropyRows", "hit", len(hit), rows)
	}
	for r, label := range labels[:rows] {
		if int(label) >= v {
			panic(fmt.Sprintf("kernels: CrossEntropyRows: label %d of row %d is not below %d", label, r, v))
		}
	}
	ParallelRows(rows, rowBlock(4*v), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row := logits[r*v : (r+1)*v]
			label := int(labels[r])
			if label < 0 {
				clear(row)
				loss[r] = 0
				if hit != nil {
					hit[r] = false
				}
				continue
			}
			target := row[label]
			if hit != nil {
				first := target >= maxOf(row[label:])
				hit[r] = first && (label == 0 || maxOf(row[:label]) < target)
			}
			loss[r] = crossEntropyRow(row, label, scale[r])
		}
	})
}

// crossEntropyRow does one row of [CrossEntropyRows] and returns its loss. The
// target is kept out of the sum of the others: where it is nearly certain,
// 1-p and log p would otherwise lose all their digits.
func crossEntropyRow[T Float](row []T, label int, scale T) float64 {
	max, target := maxOf(row), row[label]
	row[label] = T(math.Inf(-1))
	others := expSum(row, max)
	own := T(math.Exp(float64(target - max)))
	sum := others + own
	Scale(row, scale/sum)
	row[label] = -scale * (others / sum)
	if target == max { // own is 1
		return math.Log1p(float64(others))
	}
	return math.Log(float64(sum)) + (float64(max) - float64(target))
}
