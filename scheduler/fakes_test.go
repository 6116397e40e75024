package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// noVolumes is a cluster without storage.
type noVolumes struct{}

func (noVolumes) Claim(string, string) (*corev1.PersistentVolumeClaim, bool) { return nil, false }
func (noVolumes) Volume(string) (*corev1.PersistentVolume, bool)             { return nil, false }
func (noVolumes) List() []*corev1.PersistentVolume                           { return nil }
func (noVolumes) Class(string) (*storagev1.StorageClass, bool)               { return nil, false }
func (noVolumes) Node(string) (*storagev1.CSINode, bool)                     { return nil, false }
func (noVolumes) Bind(context.Context, *corev1.PersistentVolume, *corev1.PersistentVolumeClaim) error {
	return nil
}
func (noVolumes) Provision(_ context.Context, c *corev1.PersistentVolumeClaim, _ string) (*corev1.PersistentVolumeClaim, error) {
	return c, nil
}
func (noVolumes) WaitBound(context.Context, *corev1.PersistentVolumeClaim, string) error { return nil }
