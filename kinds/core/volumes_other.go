package core

import (
	"net"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkSharedSources checks storage that speaks a network protocol.
func checkSharedSources(s *sourceCheck, v *corev1.VolumeSource, volume string) {
	s.one("gitRepo", v.GitRepo != nil, func(at *field.Path) {
		s.needs(at.Child("repository"), v.GitRepo.Repository)
		descendingPath(s.problems, v.GitRepo.Directory, at.Child("directory"))
	})
	s.one("nfs", v.NFS != nil, func(at *field.Path) { checkNFS(s.problems, v.NFS, at) })
	s.one("iscsi", v.ISCSI != nil, func(at *field.Path) {
		i := v.ISCSI
		checkISCSI(s.problems, i.TargetPortal, i.IQN, i.Lun, i.InitiatorName, (i.DiscoveryCHAPAuth || i.SessionCHAPAuth) && i.SecretRef == nil, foreignISCSIName, at)
		if i.InitiatorName != nil && len(volume+":"+i.TargetPortal) > 64 {
			s.invalid(s.path.Child("name"), volume, iscsiNameTooLong)
		}
	})
	s.one("glusterfs", v.Glusterfs != nil, func(at *field.Path) {
		s.needs(at.Child("endpoints"), v.Glusterfs.EndpointsName)
		s.needs(at.Child("path"), v.Glusterfs.Path)
	})
	s.one("flocker", v.Flocker != nil, func(at *field.Path) { checkFlocker(s.problems, v.Flocker, at) })
	s.one("rbd", v.RBD != nil, func(at *field.Path) { checkRBD(s.problems, v.RBD.CephMonitors, v.RBD.RBDImage, at) })
	s.one("cephfs", v.CephFS != nil, func(at *field.Path) {
		if len(v.CephFS.Monitors) == 0 {
			s.required(at.Child("monitors"), "")
		}
	})
	s.one("quobyte", v.Quobyte != nil, func(at *field.Path) { checkQuobyte(s.problems, v.Quobyte, at) })
	s.one("fc", v.FC != nil, func(at *field.Path) { checkFC(s.problems, v.FC, at) })
	s.one("flexVolume", v.FlexVolume != nil, func(at *field.Path) { checkFlex(s.problems, v.FlexVolume.Driver, v.FlexVolume.Options, at) })
}

// checkCloudSources checks the disks of clouds and storage products.
func checkCloudSources(s *sourceCheck, v *corev1.VolumeSource) {
	s.one("gcePersistentDisk", v.GCEPersistentDisk != nil, func(at *field.Path) {
		checkDisk(s.problems, "pdName", v.GCEPersistentDisk.PDName, v.GCEPersistentDisk.Partition, at)
	})
	s.one("awsElasticBlockStore", v.AWSElasticBlockStore != nil, func(at *field.Path) {
		checkDisk(s.problems, "volumeID", v.AWSElasticBlockStore.VolumeID, v.AWSElasticBlockStore.Partition, at)
	})
	s.one("cinder", v.Cinder != nil, func(at *field.Path) {
		s.needs(at.Child("volumeID"), v.Cinder.VolumeID)
		if v.Cinder.SecretRef != nil {
			s.needs(at.Child("secretRef", "name"), v.Cinder.SecretRef.Name)
		}
	})
	s.one("azureFile", v.AzureFile != nil, func(at *field.Path) {
		s.needs(at.Child("secretName"), v.AzureFile.SecretName)
		s.needs(at.Child("shareName"), v.AzureFile.ShareName)
	})
	s.one("azureDisk", v.AzureDisk != nil, func(at *field.Path) { checkAzureDisk(s.problems, v.AzureDisk, at) })
	s.one("vsphereVolume", v.VsphereVolume != nil, func(at *field.Path) { s.needs(at.Child("volumePath"), v.VsphereVolume.VolumePath) })
	s.one("photonPersistentDisk", v.PhotonPersistentDisk != nil, func(at *field.Path) { s.needs(at.Child("pdID"), v.PhotonPersistentDisk.PdID) })
	s.one("portworxVolume", v.PortworxVolume != nil, func(at *field.Path) { s.needs(at.Child("volumeID"), v.PortworxVolume.VolumeID) })
	s.one("scaleIO", v.ScaleIO != nil, func(at *field.Path) {
		checkScaleIO(s.problems, v.ScaleIO.Gateway, v.ScaleIO.System, v.ScaleIO.VolumeName, at)
	})
	s.one("storageos", v.StorageOS != nil, func(at *field.Path) {
		s.neededLabel(at.Child("volumeName"), v.StorageOS.VolumeName)
		if v.StorageOS.VolumeNamespace != "" {
			s.label(at.Child("volumeNamespace"), v.StorageOS.VolumeNamespace)
		}
		if v.StorageOS.SecretRef != nil {
			s.needs(at.Child("secretRef", "name"), v.StorageOS.SecretRef.Name)
		}
	})
}

func checkDisk(p *problems, name, value string, partition int32, at *field.Path) {
	p.needs(at.Child(name), value)
	if partition < 0 || partition > 255 {
		p.invalid(at.Child("partition"), partition, validation.InclusiveRangeError(1, 255))
	}
}

var (
	iqnForm = regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)
	euiForm = regexp.MustCompile(`^eui.[[:alnum:]]{16}$`)
	naaForm = regexp.MustCompile(`^naa.[[:alnum:]]{32}$`)
)

const iscsiNameTooLong = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."

// Clients know what is said of an iSCSI name of no known form by two texts: in a pod, and in a persistent volume.
const (
	foreignISCSIName = "must be valid format starting with iqn, eui, or naa"
	wrongISCSIName   = "must be valid format"
)

func checkISCSI(p *problems, portal, iqn string, lun int32, initiator *string, secretMissing bool, foreign string, at *field.Path) {
	p.needs(at.Child("targetPortal"), portal)
	if p.needs(at.Child("iqn"), iqn) {
		checkISCSIName(p, iqn, foreign, at.Child("iqn"))
	}
	p.between(at.Child("lun"), int64(lun), 0, 255)
	if secretMissing {
		p.required(at.Child("secretRef"), "")
	}
	if initiator != nil {
		checkISCSIName(p, *initiator, foreign, at.Child("initiatorname"))
	}
}

func checkISCSIName(p *problems, name, foreign string, at *field.Path) {
	form := map[string]*regexp.Regexp{"iqn": iqnForm, "eui": euiForm, "naa": naaForm}[name[:min(3, len(name))]]
	if form == nil {
		p.invalid(at, name, foreign)
	} else if !form.MatchString(name) {
		p.invalid(at, name, wrongISCSIName)
	}
}

func checkFlocker(p *problems, f *corev1.FlockerVolumeSource, at *field.Path) {
	if f.DatasetName == "" && f.DatasetUUID == "" {
		p.required(at, "one of datasetName and datasetUUID is required")
	}
	if f.DatasetName != "" && f.DatasetUUID != "" {
		p.invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(f.DatasetName, "/") {
		p.invalid(at.Child("datasetName"), f.DatasetName, "must not contain '/'")
	}
}

func checkRBD(p *problems, monitors []string, image string, at *field.Path) {
	if len(monitors) == 0 {
		p.required(at.Child("monitors"), "")
	}
	p.needs(at.Child("image"), image)
}

func checkQuobyte(p *problems, q *corev1.QuobyteVolumeSource, at *field.Path) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	switch {
	case q.Registry == "":
		p.required(at.Child("registry"), pairs)
	case len(q.Tenant) >= 65:
		p.required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters")
	default:
		for pair := range strings.SplitSeq(q.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				p.invalid(at.Child("registry"), q.Registry, pairs)
			}
		}
	}
	p.needs(at.Child("volume"), q.Volume)
}

func checkFC(p *problems, f *corev1.FCVolumeSource, at *field.Path) {
	switch {
	case len(f.TargetWWNs) == 0 && len(f.WWIDs) == 0:
		p.required(at.Child("targetWWNs"), "must specify either targetWWNs or wwids, but not both")
	case len(f.TargetWWNs) > 0 && len(f.WWIDs) > 0:
		p.invalid(at.Child("targetWWNs"), f.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")
	}
	if len(f.TargetWWNs) == 0 {
		return
	}
	if f.Lun == nil {
		p.required(at.Child("lun"), "lun is required if targetWWNs is specified")
	} else {
		p.between(at.Child("lun"), int64(*f.Lun), 0, 255)
	}
}

func checkFlex(p *problems, driver string, options map[string]string, at *field.Path) {
	p.needs(at.Child("driver"), driver)
	for key := range options {
		domain, _, _ := strings.Cut(key, "/")
		domain = "." + strings.ToLower(domain)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			p.invalid(at.Child("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

func checkAzureDisk(p *problems, d *corev1.AzureDiskVolumeSource, at *field.Path) {
	p.needs(at.Child("diskName"), d.DiskName)
	p.needs(at.Child("diskURI"), d.DataDiskURI)
	optionalOneOf(p, at.Child("cachingMode"), d.CachingMode, corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)
	optionalOneOf(p, at.Child("kind"), d.Kind, corev1.AzureSharedBlobDisk, corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk)
	if d.Kind == nil {
		return
	}
	if managed := *d.Kind == corev1.AzureManagedDisk; managed && !strings.HasPrefix(d.DataDiskURI, "/subscriptions/") {
		p.add(field.NotSupported(at.Child("diskURI"), d.DataDiskURI, []string{"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"}))
	} else if !managed && !strings.HasPrefix(d.DataDiskURI, "https://") {
		p.add(field.NotSupported(at.Child("diskURI"), d.DataDiskURI, []string{"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"}))
	}
}

func checkScaleIO(p *problems, gateway, system, volume string, at *field.Path) {
	p.needs(at.Child("gateway"), gateway)
	p.needs(at.Child("system"), system)
	p.needs(at.Child("volumeName"), volume)
}

func checkDriverName(p *problems, name string, at *field.Path) {
	if !p.needs(at, name) {
		return
	}
	if len(name) > 63 {
		p.add(field.TooLong(at, "", 63))
	}
	p.each(at, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
}
