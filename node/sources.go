package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/node/downward"
	"github.com/yare-project/yare/node/environ"
)

// sources is where the values of environments come from.
type sources struct{ agent *Agent }

var _ environ.Sources = sources{}

func (s sources) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return s.agent.objects.ConfigMap(ctx, namespace, name)
}

func (s sources) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return s.agent.objects.Secret(ctx, namespace, name)
}

func (s sources) Services(namespace string) []*corev1.Service {
	return s.agent.services.List(namespace)
}

func (s sources) File(pod *corev1.Pod, volume, path string) ([]byte, error) {
	return s.agent.volumes.File(pod, volume, path)
}

// facts answers what the downward API needs to know beside the pod itself.
func (a *Agent) facts(*corev1.Pod) downward.Facts {
	return downward.Facts{HostIPs: a.cfg.IPs, Allocatable: a.node.allocatable()}
}
