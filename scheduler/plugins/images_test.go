package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func holds(image string, mib int64) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: mib << 20})
	}
}

// TestImages: between 23 MiB and 1,000 MiB per container, images that are there count by their size times the part of the nodes that have them.
func TestImages(t *testing.T) {
	images := func(init string, list ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = nil
			for _, i := range list {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Image: i})
			}
			if init != "" {
				p.Spec.InitContainers = []corev1.Container{{Image: init}}
			}
		}
	}
	score := func(mib, containers int64) int64 { return 100 * (mib - 23) / (1000*containers - 23) }
	f := newFixture(t, testNode("a", holds("web:1", 400), holds("registry:5000/db:latest", 300)), testNode("b", holds("web:1", 400), holds("tiny:1", 20)), testNode("c", holds("huge:1", 90_000)), testNode("d"))
	for _, c := range []struct {
		name       string
		pod        func(*corev1.Pod)
		a, b, c, d int64
	}{
		{"on half of the nodes", images("", "web:1"), score(200, 1), score(200, 1), 0, 0},
		{"without a tag", images("", "registry:5000/db"), score(75, 1), 0, 0, 0},
		{"two containers", images("", "web:1", "registry:5000/db"), score(275, 2), score(200, 2), 0, 0},
		{"init containers, too", images("web:1", "none:1"), score(200, 2), score(200, 2), 0, 0},
		{"too small to matter", images("", "tiny:1"), 0, 0, 0, 0},
		{"no more than all", images("", "huge:1"), 0, 0, 100, 0},
		{"image volumes", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "web:1"}}}}
		}, score(200, 1), score(200, 1), 0, 0},
	} {
		f.wantScores(c.name, ImageLocality, "", f.pod("p", c.pod), map[string]int64{"a": c.a, "b": c.b, "c": c.c, "d": c.d})
	}
}
