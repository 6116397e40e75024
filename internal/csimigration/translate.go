package csimigration

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// Translate is a PersistentVolume of an in-tree plugin as the plugin's driver knows it: with a CSI source, and with the driver's topology label in place of the
// zone labels. A volume of another sort is returned as it is. The error says why the source has no such meaning.
func Translate(v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	plugin := PluginOf(v)
	if plugin == "" {
		return v, nil
	}
	out, err := csitranslation.New().TranslateInTreePVToCSI(klog.Logger{}, v)
	if err == nil && out.Spec.CSI == nil {
		err = errors.New("the result has no CSI source")
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s of %s can't be handled by CSI driver %s: %w", v.Name, plugin, Driver(plugin), err)
	}
	return out, nil
}

// policyAttribute is where driver csi.vsphere.vmware.com looks for the storage policy.
const policyAttribute = "storagepolicyname"

// TranslateInline is a volume of an in-tree plugin in the spec of a pod as the plugin's driver knows it, as if it were a PersistentVolume: one that is in no
// API, named after the driver and the disk. Namespace is the pod's. A volume of another sort gives nil.
func TranslateInline(v *corev1.Volume, namespace string) (*corev1.PersistentVolume, error) {
	plugin := PluginOfInline(v)
	if plugin == "" {
		return nil, nil
	}
	policy := ""
	if s := v.VsphereVolume; s != nil && s.StoragePolicyName != "" { // which the library can't read here
		policy = s.StoragePolicyName
		v = v.DeepCopy()
		v.VsphereVolume.StoragePolicyName = ""
	}
	out, err := csitranslation.New().TranslateInTreeInlineVolumeToCSI(klog.Logger{}, v, namespace)
	if err == nil && out.Spec.CSI == nil {
		err = errors.New("the result has no CSI source")
	}
	if err != nil {
		return nil, fmt.Errorf("volume %q of %s can't be handled by CSI driver %s: %w", v.Name, plugin, Driver(plugin), err)
	}
	if policy != "" {
		out.Spec.CSI.VolumeAttributes[policyAttribute] = policy
	}
	return out, nil
}
