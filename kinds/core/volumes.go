package core

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkVolumes checks the volumes and remembers the good ones for the mounts.
func (c *podCheck) checkVolumes(path *field.Path) {
	c.volumes = map[string]*corev1.VolumeSource{}
	made := sets.New[string]() // names of the claims that ephemeral volumes will make
	for _, v := range c.spec.Volumes {
		if v.Ephemeral != nil && c.meta != nil && c.meta.Name != "" {
			made.Insert(c.meta.Name + "-" + v.Name)
		}
	}
	for i := range c.spec.Volumes {
		v, at, before := &c.spec.Volumes[i], path.Index(i), len(c.list)
		c.checkVolume(v, at)
		c.neededLabel(at.Child("name"), v.Name)
		if _, taken := c.volumes[v.Name]; taken {
			c.add(field.Duplicate(at.Child("name"), v.Name))
		}
		if len(c.list) == before {
			c.volumes[v.Name] = &v.VolumeSource
		}
		if claim := v.PersistentVolumeClaim; claim != nil && made.Has(claim.ClaimName) {
			c.invalid(at.Child("persistentVolumeClaim", "claimName"), claim.ClaimName, "must not reference a PVC that gets created for an ephemeral volume")
		}
	}
}

// sourceCheck lets the first source of a volume through and refuses the others.
type sourceCheck struct {
	*problems
	path *field.Path
	// order says which of several sources is taken for the volume's.
	order []string
	// choosing is the first of two visits: it finds first, which the second checks.
	choosing bool
	first    string
}

// podSources and persistentSources are the orders of the sources of a pod's and a persistent volume.
var (
	podSources = []string{"emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi", "glusterfs", "flocker",
		"persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc", "flexVolume", "configMap", "azureFile", "vsphereVolume",
		"photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO", "csi", "ephemeral", "image"}
	persistentSources = []string{"hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs", "rbd", "quobyte", "cephfs", "iscsi",
		"cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "scaleIO", "local", "storageos", "csi"}
)

// visit has every source told to one, twice, and says whether there was any.
func (s *sourceCheck) visit(sources func()) bool {
	s.choosing = true
	sources()
	s.choosing = false
	sources()
	return s.first != ""
}

func (s *sourceCheck) one(name string, set bool, check func(at *field.Path)) {
	switch {
	case !set:
	case s.choosing:
		if s.first == "" || slices.Index(s.order, name) < slices.Index(s.order, s.first) {
			s.first = name
		}
	case name == s.first:
		check(s.path.Child(name))
	case name == "cephfs":
		s.forbidden(s.path.Child("cephFS"), onlyOneVolume) // clients know the cause by this spelling
	default:
		s.forbidden(s.path.Child(name), onlyOneVolume)
	}
}

func (c *podCheck) checkVolume(v *corev1.Volume, path *field.Path) {
	s := &sourceCheck{problems: &c.problems, path: path, order: podSources}
	if !s.visit(func() {
		c.checkClusterSources(s, v)
		checkSharedSources(s, &v.VolumeSource, v.Name)
		checkCloudSources(s, &v.VolumeSource)
	}) {
		c.required(path, "must specify a volume type")
	}
}

// checkClusterSources checks the sources that the cluster itself provides.
func (c *podCheck) checkClusterSources(s *sourceCheck, v *corev1.Volume) {
	s.one("emptyDir", v.EmptyDir != nil, func(at *field.Path) {
		if limit := v.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
			s.forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")
		}
	})
	s.one("hostPath", v.HostPath != nil, func(at *field.Path) { checkHostPath(s.problems, v.HostPath, at) })
	s.one("secret", v.Secret != nil, func(at *field.Path) {
		s.needs(at.Child("secretName"), v.Secret.SecretName)
		s.mode(at.Child("defaultMode"), v.Secret.DefaultMode)
		checkKeyPaths(s.problems, v.Secret.Items, at.Child("items"))
	})
	s.one("configMap", v.ConfigMap != nil, func(at *field.Path) {
		s.needs(at.Child("name"), v.ConfigMap.Name)
		s.mode(at.Child("defaultMode"), v.ConfigMap.DefaultMode)
		checkKeyPaths(s.problems, v.ConfigMap.Items, at.Child("items"))
	})
	s.one("downwardAPI", v.DownwardAPI != nil, func(at *field.Path) {
		s.mode(at.Child("defaultMode"), v.DownwardAPI.DefaultMode)
		for i := range v.DownwardAPI.Items {
			checkDownwardFile(s.problems, &v.DownwardAPI.Items[i], at.Child("items").Index(i))
		}
	})
	s.one("projected", v.Projected != nil, func(at *field.Path) { checkProjected(s.problems, v.Projected, at) })
	s.one("persistentVolumeClaim", v.PersistentVolumeClaim != nil, func(at *field.Path) {
		s.needs(at.Child("claimName"), v.PersistentVolumeClaim.ClaimName)
	})
	s.one("ephemeral", v.Ephemeral != nil, func(at *field.Path) { c.checkEphemeralVolume(v, s.path, at) })
	s.one("csi", v.CSI != nil, func(at *field.Path) {
		checkDriverName(s.problems, v.CSI.Driver, at.Child("driver"))
		if ref := v.CSI.NodePublishSecretRef; ref != nil {
			s.neededSubdomain(at.Child("nodePublishSecretRef", "name"), ref.Name)
		}
	})
	s.one("image", v.Image != nil, func(at *field.Path) {
		if c.meta != nil {
			s.needs(at.Child("reference"), v.Image.Reference)
		}
		checkPullPolicy(s.problems, v.Image.PullPolicy, at.Child("pullPolicy"))
	})
}

func (c *podCheck) checkEphemeralVolume(v *corev1.Volume, volume, at *field.Path) {
	template := v.Ephemeral.VolumeClaimTemplate
	if template == nil {
		c.required(at.Child("volumeClaimTemplate"), "")
	} else {
		c.add(validateClaimTemplate(template, at.Child("volumeClaimTemplate"))...)
	}
	if c.meta == nil || c.meta.Name == "" || v.Name == "" {
		return
	}
	claim := c.meta.Name + "-" + v.Name
	for _, message := range subdomainName(claim, false) {
		c.invalid(volume.Child("name"), v.Name, "PVC name \""+claim+"\": "+message)
	}
}

func checkHostPath(p *problems, h *corev1.HostPathVolumeSource, at *field.Path) {
	if !p.needs(at.Child("path"), h.Path) {
		return
	}
	noBacksteps(p, h.Path, at.Child("path"))
	optionalOneOf(p, at.Child("type"), h.Type, corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
		corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)
}

func checkKeyPaths(p *problems, items []corev1.KeyToPath, path *field.Path) {
	for i, item := range items {
		at := path.Index(i)
		p.needs(at.Child("key"), item.Key)
		p.needs(at.Child("path"), item.Path)
		unreservedPath(p, item.Path, at.Child("path"))
		p.mode(at.Child("mode"), item.Mode)
	}
}

func checkDownwardFile(p *problems, f *corev1.DownwardAPIVolumeFile, at *field.Path) {
	p.needs(at.Child("path"), f.Path)
	unreservedPath(p, f.Path, at.Child("path"))
	switch {
	case f.FieldRef != nil:
		checkFieldRef(p, f.FieldRef, volumeFieldPaths, at.Child("fieldRef"))
		if f.ResourceFieldRef != nil {
			p.invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case f.ResourceFieldRef != nil:
		checkResourceRef(p, f.ResourceFieldRef, true, at.Child("resourceFieldRef"))
	default:
		p.required(at, "one of fieldRef and resourceFieldRef is required")
	}
	p.mode(at.Child("mode"), f.Mode)
}

func checkNFS(p *problems, n *corev1.NFSVolumeSource, at *field.Path) {
	p.needs(at.Child("server"), n.Server)
	p.needs(at.Child("path"), n.Path)
	if !path.IsAbs(n.Path) {
		p.invalid(at.Child("path"), n.Path, "must be an absolute path")
	}
}
