package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkPersistentSource checks the one source of a persistent volume.
func checkPersistentSource(p *problems, spec *corev1.PersistentVolumeSpec, name string, path *field.Path) {
	s, v := &sourceCheck{problems: p, path: path, order: persistentSources}, &spec.PersistentVolumeSource
	// What a pod's volume has as well is checked as such.
	shared := &corev1.VolumeSource{
		HostPath: v.HostPath, NFS: v.NFS, Flocker: v.Flocker, Quobyte: v.Quobyte, FC: v.FC, GCEPersistentDisk: v.GCEPersistentDisk,
		AWSElasticBlockStore: v.AWSElasticBlockStore, AzureDisk: v.AzureDisk, VsphereVolume: v.VsphereVolume, PhotonPersistentDisk: v.PhotonPersistentDisk,
		PortworxVolume: v.PortworxVolume,
	}
	if !s.visit(func() {
		s.one("hostPath", v.HostPath != nil, func(at *field.Path) { checkHostPath(p, v.HostPath, at) })
		checkSharedSources(s, shared, name)
		checkCloudSources(s, shared)
		checkPersistentShared(s, v, name)
		checkPersistentCloud(s, v)
		s.one("local", v.Local != nil, func(at *field.Path) {
			if p.needs(at.Child("path"), v.Local.Path) {
				noBacksteps(p, v.Local.Path, at.Child("path"))
			}
			if spec.NodeAffinity == nil {
				p.required(path.Child("nodeAffinity"), "Local volume requires node affinity")
			}
		})
		s.one("csi", v.CSI != nil, func(at *field.Path) {
			checkDriverName(p, v.CSI.Driver, at.Child("driver"))
			p.needs(at.Child("volumeHandle"), v.CSI.VolumeHandle)
			checkSecretRef(p, v.CSI.ControllerPublishSecretRef, at.Child("controllerPublishSecretRef"))
			checkSecretRef(p, v.CSI.ControllerExpandSecretRef, at.Child("controllerExpandSecretRef"))
			checkSecretRef(p, v.CSI.NodePublishSecretRef, at.Child("nodePublishSecretRef"))
			checkSecretRef(p, v.CSI.NodeExpandSecretRef, at.Child("nodeExpandSecretRef"))
		})
	}) {
		p.required(path, "must specify a volume type")
	}
}

func checkSecretRef(p *problems, ref *corev1.SecretReference, at *field.Path) {
	if ref == nil {
		return
	}
	p.neededSubdomain(at.Child("name"), ref.Name)
	p.neededLabel(at.Child("namespace"), ref.Namespace)
}

func checkPersistentShared(s *sourceCheck, v *corev1.PersistentVolumeSource, name string) {
	p := s.problems
	s.one("glusterfs", v.Glusterfs != nil, func(at *field.Path) {
		p.needs(at.Child("endpoints"), v.Glusterfs.EndpointsName)
		p.needs(at.Child("path"), v.Glusterfs.Path)
		if ns := v.Glusterfs.EndpointsNamespace; ns != nil && *ns == "" {
			p.invalid(at.Child("endpointsNamespace"), *ns, "if the endpointnamespace is set, it must be a valid namespace name")
		} else if ns != nil {
			p.label(at.Child("endpointsNamespace"), *ns)
		}
	})
	s.one("rbd", v.RBD != nil, func(at *field.Path) { checkRBD(p, v.RBD.CephMonitors, v.RBD.RBDImage, at) })
	s.one("cephfs", v.CephFS != nil, func(at *field.Path) {
		if len(v.CephFS.Monitors) == 0 {
			p.required(at.Child("monitors"), "")
		}
	})
	s.one("iscsi", v.ISCSI != nil, func(at *field.Path) {
		i := v.ISCSI
		checkISCSI(p, i.TargetPortal, i.IQN, i.Lun, i.InitiatorName, (i.DiscoveryCHAPAuth || i.SessionCHAPAuth) && i.SecretRef == nil, wrongISCSIName, at)
		if i.InitiatorName != nil && len(name+":"+i.TargetPortal) > 64 {
			p.invalid(at.Child("targetPortal"), i.TargetPortal, iscsiNameTooLong)
		}
		if i.SecretRef != nil {
			p.needs(at.Child("secretRef", "name"), i.SecretRef.Name)
		}
	})
	if v.FlexVolume != nil && !s.choosing && s.first != "flexVolume" { // which Kubernetes lets be a second source
		checkFlex(p, v.FlexVolume.Driver, v.FlexVolume.Options, s.path.Child("flexVolume"))
		return
	}
	s.one("flexVolume", v.FlexVolume != nil, func(at *field.Path) { checkFlex(p, v.FlexVolume.Driver, v.FlexVolume.Options, at) })
}

func checkPersistentCloud(s *sourceCheck, v *corev1.PersistentVolumeSource) {
	p := s.problems
	s.one("cinder", v.Cinder != nil, func(at *field.Path) {
		p.needs(at.Child("volumeID"), v.Cinder.VolumeID)
		if ref := v.Cinder.SecretRef; ref != nil {
			p.needs(at.Child("secretRef", "name"), ref.Name)
			p.needs(at.Child("secretRef", "namespace"), ref.Namespace)
		}
	})
	s.one("azureFile", v.AzureFile != nil, func(at *field.Path) {
		p.needs(at.Child("secretName"), v.AzureFile.SecretName)
		p.needs(at.Child("shareName"), v.AzureFile.ShareName)
		if ns := v.AzureFile.SecretNamespace; ns != nil {
			p.needs(at.Child("secretNamespace"), *ns)
		}
	})
	s.one("scaleIO", v.ScaleIO != nil, func(at *field.Path) { checkScaleIO(p, v.ScaleIO.Gateway, v.ScaleIO.System, v.ScaleIO.VolumeName, at) })
	s.one("storageos", v.StorageOS != nil, func(at *field.Path) {
		p.neededLabel(at.Child("volumeName"), v.StorageOS.VolumeName)
		if v.StorageOS.VolumeNamespace != "" {
			p.label(at.Child("volumeNamespace"), v.StorageOS.VolumeNamespace)
		}
		if ref := v.StorageOS.SecretRef; ref != nil {
			p.needs(at.Child("secretRef", "name"), ref.Name)
			p.needs(at.Child("secretRef", "namespace"), ref.Namespace)
		}
	})
}
