package plugins

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/scheduler/framework"
)

// Sizes between which an image that a node already has counts.
const (
	imageLeast = 23 << 20
	imageMost  = 1000 << 20 // per container
)

// images prefers nodes that have the pod's images already, the more so the more nodes have them: so that one node does not draw all pods.
type images struct{ nodes *framework.Nodes }

func newImages(args []byte, h *framework.Handle) (framework.Plugin, error) {
	return images{h.Nodes}, decode(args, ImageLocality, &struct {
		metav1.TypeMeta `json:",inline"`
	}{})
}

func (images) Name() string                           { return ImageLocality }
func (images) SpecOnly() bool                         { return true }
func (images) ScoreScope() framework.Scope            { return framework.OnNode }
func (images) Normalization() framework.Normalization { return framework.None }
func (p images) Epoch() uint64                        { return p.nodes.ImageEpoch() }

func (images) Score(c *framework.Cycle, i int) int64 {
	s := &c.Pod.Object.Spec
	var sum int64
	if len(c.Nodes.Images[i]) > 0 {
		for k := range s.InitContainers {
			sum += imageScore(c.Nodes, i, s.InitContainers[k].Image)
		}
		for k := range s.Containers {
			sum += imageScore(c.Nodes, i, s.Containers[k].Image)
		}
		for k := range s.Volumes {
			if v := s.Volumes[k].Image; v != nil {
				sum += imageScore(c.Nodes, i, v.Reference)
			}
		}
	}
	most := int64(imageMost) * int64(len(s.InitContainers)+len(s.Containers))
	if sum = min(max(sum, imageLeast), most); most <= imageLeast {
		return 0
	}
	return framework.MaxScore * (sum - imageLeast) / (most - imageLeast)
}

func imageScore(n *framework.Nodes, i int, image string) int64 {
	image = framework.NormalImage(image)
	size, ok := n.Images[i][image]
	if !ok {
		return 0
	}
	return int64(float64(size) * (float64(n.ImageNodes(image)) / float64(n.Len())))
}
