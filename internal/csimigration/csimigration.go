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

// migrated are all in-tree plugins that CSI drivers took over, in alphabetical order.
var migrated = [...]struct{ plugin, driver string }{
	{plugins.AWSEBSInTreePluginName, plugins.AWSEBSDriverName},
	{plugins.AzureDiskInTreePluginName, plugins.AzureDiskDriverName},
	{plugins.AzureFileInTreePluginName, plugins.AzureFileDriverName},
	{plugins.CinderInTreePluginName, plugins.CinderDriverName},
	{plugins.GCEPDInTreePluginName, plugins.GCEPDDriverName},
	{plugins.PortworxVolumePluginName, plugins.PortworxDriverName},
	{plugins.VSphereInTreePluginName, plugins.VSphereDriverName},
}

// Driver is the CSI driver that took over an in-tree plugin, such as ebs.csi.aws.com for kubernetes.io/aws-ebs; empty if plugin is none of those. Storage classes
// name plugins as their provisioners.
func Driver(plugin string) string {
	for i := range migrated {
		if migrated[i].plugin == plugin {
			return migrated[i].driver
		}
	}
	return ""
}

// Plugins are all in-tree plugins that CSI drivers took over, in alphabetical order.
func Plugins() []string {
	out := make([]string, len(migrated))
	for i := range migrated {
		out[i] = migrated[i].plugin
	}
	return out
}

// Counted tells whether the scheduler takes a plugin's volumes for its driver's: whether they count against the driver's limits, and where they are reached from.
// Kubernetes never switched that on for azureFile, which is not attached, and for vsphereVolume.
func Counted(plugin string) bool {
	return Driver(plugin) != "" && plugin != plugins.AzureFileInTreePluginName && plugin != plugins.VSphereInTreePluginName
}

// PluginOf is the in-tree plugin of a PersistentVolume; empty if it is of another sort.
func PluginOf(v *corev1.PersistentVolume) string {
	s := &v.Spec.PersistentVolumeSource
	if s.CSI != nil { // by far the most
		return ""
	}
	return pluginWith(s.AWSElasticBlockStore != nil, s.AzureDisk != nil, s.AzureFile != nil, s.Cinder != nil, s.GCEPersistentDisk != nil, s.PortworxVolume != nil, s.VsphereVolume != nil)
}

// PluginOfInline is the in-tree plugin of a volume in a pod's spec; empty if it is of another sort.
func PluginOfInline(v *corev1.Volume) string {
	s := &v.VolumeSource
	return pluginWith(s.AWSElasticBlockStore != nil, s.AzureDisk != nil, s.AzureFile != nil, s.Cinder != nil, s.GCEPersistentDisk != nil, s.PortworxVolume != nil, s.VsphereVolume != nil)
}

// pluginWith is the first plugin, in the order of migrated, whose source is there.
func pluginWith(there ...bool) string {
	if i := slices.Index(there, true); i >= 0 {
		return migrated[i].plugin
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
