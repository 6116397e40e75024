package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/client"
)

// Evict deletes a pod after it is told why by its condition DisruptionTarget. One that is gone, or another of its name, is left alone.
func Evict(ctx context.Context, api client.API[*corev1.Pod], p *corev1.Pod, at time.Time, reason, message string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at), Reason: reason, Message: message}}}})
	if err != nil {
		return err
	}
	if _, err := api.Patch(ctx, p.Namespace, p.Name, types.StrategicMergePatchType, body, "status"); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("mark pod as disrupted: %w", err)
	}
	err = api.Delete(ctx, p.Namespace, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
