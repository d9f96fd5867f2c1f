package trainer

import "github.com/specstream/specstream"

// LearningRate is the rate of step k (0-based): linear warm-up to the peak, then
// linear decay to zero after the last step.
func LearningRate(s specstream.TrainSpec, k int) float64 {
	if k < s.WarmupSteps {
		return s.LearningRate * float64(k+1) / float64(s.WarmupSteps)
	}
	return s.LearningRate * float64(s.Steps-k) / float64(max(1, s.Steps-s.WarmupSteps))
}
