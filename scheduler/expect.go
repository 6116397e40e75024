package scheduler

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/scheduler/framework"
)

// expect tells others, such as cluster autoscalers, where a pod is going to be that is not bound at once, because something holds it back or has to be got ready
// first. Binding clears it again. That it can't be told keeps nothing back.
func (s *Scheduler) expect(ctx context.Context, it *item, c *framework.Cycle, node string, hold *held) {
	pod := it.pod.Object
	if pod.Status.NominatedNodeName == node || hold == nil && !prebinds(it.profile, c) {
		return
	}
	s.writer.forget(pod.UID)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"nominatedNodeName": node}})
	if err == nil {
		_, err = client.Of[*corev1.Pod](s.config.Transport).Patch(ctx, pod.Namespace, pod.Name, types.StrategicMergePatchType, body, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		s.config.Log.Warn("expected node not told", "pod", pod.Namespace+"/"+pod.Name, "node", node, "error", err)
	}
}

// prebinds tells whether a plugin has something to do before a pod is bound.
func prebinds(p *framework.Profile, c *framework.Cycle) bool {
	for _, plugin := range p.PreBind {
		if t, ok := plugin.(framework.PreBindTeller); ok && t.WillPreBind(c) {
			return true
		}
	}
	return false
}
