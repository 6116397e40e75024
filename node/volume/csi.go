package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/internal/csimigration"
)

// supported is what this node can mount.
const supported = "emptyDir, hostPath, configMap, secret, downwardAPI, projected, image, and claims on local and hostPath persistent volumes"

// refuseInline says why a volume in a pod's spec can't be mounted here: who would have to do it, if that is a CSI driver.
func refuseInline(v *corev1.Volume, namespace string) error {
	if v.CSI != nil {
		return fmt.Errorf("it is an ephemeral volume of CSI driver %s, and this node runs no CSI drivers; it supports %s", v.CSI.Driver, supported)
	}
	pv, err := csimigration.TranslateInline(v, namespace)
	switch {
	case err != nil:
		return err
	case pv != nil:
		return fmt.Errorf("its source (%s) is volume %s of CSI driver %s, and this node runs no CSI drivers; it supports %s", sourceName(&v.VolumeSource), pv.Spec.CSI.VolumeHandle,
			pv.Spec.CSI.Driver, supported)
	}
	return fmt.Errorf("this node does not support its source (%s); it supports %s", sourceName(&v.VolumeSource), supported)
}

// refuse says the same of a persistent volume.
func refuse(v *corev1.PersistentVolume) error {
	source := sourceName(&v.Spec.PersistentVolumeSource)
	v, err := csimigration.Translate(v)
	switch {
	case err != nil:
		return err
	case v.Spec.CSI != nil:
		return fmt.Errorf("persistentvolume %q (%s) is volume %s of CSI driver %s, and this node runs no CSI drivers", v.Name, source, v.Spec.CSI.VolumeHandle, v.Spec.CSI.Driver)
	}
	return fmt.Errorf("this node does not support the source of persistentvolume %q (%s)", v.Name, source)
}
