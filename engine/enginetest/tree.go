package enginetest

// twoByTwo is the draft of the tree that the cases below speak of:
//
//	0 ─┬─ 1 (token 1) ─┬─ 3 (token 3)
//	   │               └─ 4 (token 4)
//	   └─ 2 (token 2) ─┬─ 5 (token 3)
//	                   └─ 6 (token 4)
var twoByTwo = [][]int32{{1, 2}, {3, 4}}

// PruneCases state section 2.3 of the paper and its tie rules by example, for
// every implementation of pruning, on whatever device.
var PruneCases = []struct {
	Name       string
	Draft      [][]int32
	Transition []float64 // by node; the root's is not read
	Limit      int
	Threshold  float64
	Want       []int // nodes kept
}{
	{"all fit", twoByTwo, []float64{0, .6, .4, .5, .5, .5, .5}, 7, 0, []int{0, 1, 2, 3, 4, 5, 6}},
	{"the root alone", twoByTwo, []float64{0, .6, .4, .5, .5, .5, .5}, 1, 0, []int{0}},
	{"best paths", twoByTwo, []float64{0, .6, .3, .9, .1, .5, .5}, 4, 0, []int{0, 1, 2, 3}},
	{"an ancestor comes before a likelier child", twoByTwo, []float64{0, .1, .2, 1, 1, .1, .1}, 3, 0, []int{0, 1, 2}},
	{"a threshold takes the subtree", twoByTwo, []float64{0, .6, .05, .9, .04, .9, .9}, 7, .1, []int{0, 1, 3}},
	{"a score at the threshold stays", twoByTwo, []float64{0, .25, .05, .25, 0, .9, .9}, 7, .25, []int{0, 1, 3}},
	{"a threshold of one takes all but the root", twoByTwo, []float64{0, .9, .9, .9, .9, .9, .9}, 7, 1, []int{0}},
	{"equal paths, lower token", twoByTwo, []float64{0, .5, .5, .5, .5, .5, .5}, 2, 0, []int{0, 1}},
	{"equal paths and tokens, lower node", twoByTwo, []float64{0, .5, .5, .5, .5, .5, .5}, 4, 0, []int{0, 1, 2, 3}},
	{"a token before a node", twoByTwo, []float64{0, .5, .5, .5, .5, .5, .5}, 5, 0, []int{0, 1, 2, 3, 5}},
	{"zeros", twoByTwo, []float64{0, 0, 0, 0, 0, 0, 0}, 3, 0, []int{0, 1, 2}},
	// Node 3 ties with node 2, and token 2 is the lower.
	{"certain paths", twoByTwo, []float64{0, 1, 1, 1, 1, 1, 1}, 3, 0, []int{0, 1, 2}},
}

// AcceptCases state acceptance by example, on the tree of twoByTwo.
var AcceptCases = []struct {
	Name       string
	Draft      [][]int32
	Choice     []int32 // the main stream's choice after each node; −1 off the path
	Path       []int   // accepted nodes, the root first
	Correction int32
}{
	{"nothing", twoByTwo, []int32{9, -1, -1, -1, -1, -1, -1}, []int{0}, 9},
	{"one", twoByTwo, []int32{2, -1, 1, -1, -1, -1, -1}, []int{0, 2}, 1},
	{"all", twoByTwo, []int32{2, -1, 4, -1, -1, -1, 5}, []int{0, 2, 6}, 5},
	{"a child of another node does not count", twoByTwo, []int32{3, -1, -1, -1, -1, -1, -1}, []int{0}, 3},
	{"no draft", nil, []int32{4}, []int{0}, 4},
}
