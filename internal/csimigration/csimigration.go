// Package csimigration knows the volume types for clouds that once were part of Kubernetes ("in-tree": awsElasticBlockStore, azureDisk, azureFile, cinder,
// gcePersistentDisk, portworxVolume, vsphereVolume) as the volumes of the CSI drivers that took them over (KEP-625). In Kubernetes 1.36 nothing else serves
// these types, so that whoever counts, places, attaches or mounts one asks here what it really is.
//
// The functions are pure and change nothing that they are given. Which handle, attributes and topology a volume gets is decided by k8s.io/csi-translation-lib,
// which the drivers' own provisioners use too: both must agree. Nothing here talks to a driver, nor tells whether it is there.
package csimigration

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/csi-translation-lib/plugins"
)

// Driver is the CSI driver that took over an in-tree plugin, such as ebs.csi.aws.com for kubernetes.io/aws-ebs; empty if plugin is none of those. Storage classes
// name plugins as their provisioners.
func Driver(plugin string) string {
	switch plugin {
	case plugins.AWSEBSInTreePluginName:
		return plugins.AWSEBSDriverName
	case plugins.AzureDiskInTreePluginName:
		return plugins.AzureDiskDriverName
	case plugins.AzureFileInTreePluginName:
		return plugins.AzureFileDriverName
	case plugins.CinderInTreePluginName:
		return plugins.CinderDriverName
	case plugins.GCEPDInTreePluginName:
		return plugins.GCEPDDriverName
	case plugins.PortworxVolumePluginName:
		return plugins.PortworxDriverName
	case plugins.VSphereInTreePluginName:
		return plugins.VSphereDriverName
	}
	return ""
}

// Plugins are all in-tree plugins that CSI drivers took over, in alphabetical order.
func Plugins() []string {
	return []string{plugins.AWSEBSInTreePluginName, plugins.AzureDiskInTreePluginName, plugins.AzureFileInTreePluginName, plugins.CinderInTreePluginName,
		plugins.GCEPDInTreePluginName, plugins.PortworxVolumePluginName, plugins.VSphereInTreePluginName}
}

// Counted tells whether the scheduler takes a plugin's volumes for its driver's: whether they count against the driver's limits, and where they are reached from.
// Kubernetes never switched that on for azureFile, which is not attached, and for vsphereVolume.
func Counted(plugin string) bool {
	return Driver(plugin) != "" && plugin != plugins.AzureFileInTreePluginName && plugin != plugins.VSphereInTreePluginName
}

// PluginOf is the in-tree plugin of a PersistentVolume; empty if it is of another sort.
func PluginOf(v *corev1.PersistentVolume) string {
	switch s := &v.Spec.PersistentVolumeSource; {
	case s.CSI != nil: // by far the most
		return ""
	case s.AWSElasticBlockStore != nil:
		return plugins.AWSEBSInTreePluginName
	case s.AzureDisk != nil:
		return plugins.AzureDiskInTreePluginName
	case s.AzureFile != nil:
		return plugins.AzureFileInTreePluginName
	case s.Cinder != nil:
		return plugins.CinderInTreePluginName
	case s.GCEPersistentDisk != nil:
		return plugins.GCEPDInTreePluginName
	case s.PortworxVolume != nil:
		return plugins.PortworxVolumePluginName
	case s.VsphereVolume != nil:
		return plugins.VSphereInTreePluginName
	}
	return ""
}

// PluginOfInline is the in-tree plugin of a volume in a pod's spec; empty if it is of another sort.
func PluginOfInline(v *corev1.Volume) string {
	switch s := &v.VolumeSource; {
	case s.AWSElasticBlockStore != nil:
		return plugins.AWSEBSInTreePluginName
	case s.AzureDisk != nil:
		return plugins.AzureDiskInTreePluginName
	case s.AzureFile != nil:
		return plugins.AzureFileInTreePluginName
	case s.Cinder != nil:
		return plugins.CinderInTreePluginName
	case s.GCEPersistentDisk != nil:
		return plugins.GCEPDInTreePluginName
	case s.PortworxVolume != nil:
		return plugins.PortworxVolumePluginName
	case s.VsphereVolume != nil:
		return plugins.VSphereInTreePluginName
	}
	return ""
}

// OnNode tells whether a node says that its driver, and not the plugin, serves a plugin's volumes there: node agents write so into the annotation
// storage.alpha.kubernetes.io/migrated-plugins of their CSINode. n may be nil, of a node that says nothing.
func OnNode(n *storagev1.CSINode, plugin string) bool {
	return n != nil && plugin != "" && slices.Contains(strings.Split(n.Annotations[corev1.MigratedPluginsAnnotationKey], ","), plugin)
}

// NodeAnnotation is what a node agent that has no in-tree plugins writes into that annotation.
func NodeAnnotation() string { return strings.Join(Plugins(), ",") }
