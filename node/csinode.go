package node

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/internal/csimigration"
)

// tellStorage writes the node's CSINode, by which the scheduler learns that this node has no in-tree plugins for clouds: where their volumes are is what their CSI drivers say
// of the node. It tries until it has worked or ctx ends.
func (r *registration) tellStorage(ctx context.Context, node *corev1.Node) {
	for wait := firstCheck; ; wait = min(2*wait, checkEvery) {
		err := r.writeCSINode(ctx, node)
		if err == nil || ctx.Err() != nil {
			return
		}
		r.cfg.Log.Warn("the node's CSINode is not written yet", "err", err, "again-in", wait)
		select {
		case <-ctx.Done():
			return
		case <-r.cfg.Clock.After(wait):
		}
	}
}

// writeCSINode makes the CSINode, or brings up to date the one that is there. What drivers put into it stays.
func (r *registration) writeCSINode(ctx context.Context, node *corev1.Node) error {
	api := client.Of[*storagev1.CSINode](r.cfg.Transport)
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	have, err := api.Get(ctx, "", node.Name)
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{owner},
			Annotations: map[string]string{corev1.MigratedPluginsAnnotationKey: csimigration.NodeAnnotation()}}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}})
		return err
	}
	if err != nil {
		return err
	}
	owned := slices.ContainsFunc(have.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == node.UID })
	if owned && have.Annotations[corev1.MigratedPluginsAnnotationKey] == csimigration.NodeAnnotation() {
		return nil
	}
	next := have.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[corev1.MigratedPluginsAnnotationKey] = csimigration.NodeAnnotation()
	next.OwnerReferences = []metav1.OwnerReference{owner}
	_, err = api.Update(ctx, next)
	return err
}
