package storage

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/cell"
	"github.com/yare-project/yare/kinds/rule"
)

var _ = kind.Add(&Group, kind.Def[storagev1.CSIDriver]{
	Names:           kind.Names{Plural: "csidrivers"},
	AnyGenerateName: true,
	ReturnDeleted:   true,
	Scope:           kind.Cluster,
	Default:         defaultCSIDriver,
	Prepare:         prepareCSIDriver,
	Validate:        validateCSIDriver,
	Warn:            warnCSIDriver,
	RequireVersion:  true,
	Columns: []kind.Column[storagev1.CSIDriver]{
		{Name: "AttachRequired", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["attachRequired"],
			Value: func(d *storagev1.CSIDriver, _ time.Time) any { return ptr.Deref(d.Spec.AttachRequired, true) }},
		{Name: "PodInfoOnMount", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["podInfoOnMount"],
			Value: func(d *storagev1.CSIDriver, _ time.Time) any { return ptr.Deref(d.Spec.PodInfoOnMount, false) }},
		{Name: "StorageCapacity", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["storageCapacity"],
			Value: func(d *storagev1.CSIDriver, _ time.Time) any { return ptr.Deref(d.Spec.StorageCapacity, false) }},
		{Name: "TokenRequests", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["tokenRequests"],
			Value: func(d *storagev1.CSIDriver, _ time.Time) any { return audiences(d.Spec.TokenRequests) }},
		{Name: "RequiresRepublish", Type: "boolean", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["requiresRepublish"],
			Value: func(d *storagev1.CSIDriver, _ time.Time) any { return ptr.Deref(d.Spec.RequiresRepublish, false) }},
		{Name: "Modes", Description: storagev1.CSIDriverSpec{}.SwaggerDoc()["volumeLifecycleModes"],
			Value: func(d *storagev1.CSIDriver, _ time.Time) any { return modes(d.Spec.VolumeLifecycleModes) }},
	},
})

func audiences(requests []storagev1.TokenRequest) string {
	if requests == nil {
		return cell.Unset
	}
	var list []string
	for _, r := range requests {
		list = append(list, r.Audience)
	}
	return strings.Join(list, ",")
}

func modes(modes []storagev1.VolumeLifecycleMode) string {
	var list []string
	for _, m := range modes {
		list = append(list, string(m))
	}
	return cell.OrNone(strings.Join(list, ","))
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	setBool := func(p **bool, value bool) {
		if *p == nil {
			*p = ptr.To(value)
		}
	}
	setBool(&d.Spec.AttachRequired, true)
	setBool(&d.Spec.PodInfoOnMount, false)
	setBool(&d.Spec.StorageCapacity, false)
	setBool(&d.Spec.RequiresRepublish, false)
	setBool(&d.Spec.SELinuxMount, false)
	if d.Spec.FSGroupPolicy == nil {
		d.Spec.FSGroupPolicy = ptr.To(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	}
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// prepareCSIDriver drops what Kubernetes 1.36 has off by default.
func prepareCSIDriver(d, old *storagev1.CSIDriver) {
	if old == nil {
		d.Generation = 0 // it counts changes only
	}
	if old == nil || old.Spec.PreventPodSchedulingIfMissing == nil {
		d.Spec.PreventPodSchedulingIfMissing = nil
	}
}

func warnCSIDriver(d, old *storagev1.CSIDriver) []string {
	changed := old == nil || !reflect.DeepEqual(d.Spec.TokenRequests, old.Spec.TokenRequests)
	if changed && len(d.Spec.TokenRequests) > 0 && d.Spec.ServiceAccountTokenInSecrets == nil {
		return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
	}
	return nil
}

const (
	minTokenSeconds = 600
	maxTokenSeconds = 1 << 32
	minUpdatePeriod = 10
)

func validateCSIDriver(d, old *storagev1.CSIDriver) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if d.Spec.FSGroupPolicy != nil {
		errs = append(errs, rule.OneOf(*d.Spec.FSGroupPolicy, path.Child("fsGroupPolicy"), storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy,
			storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)...)
	}
	errs = append(errs, validateTokenRequests(d.Spec.TokenRequests, path.Child("tokenRequests"))...)
	for _, m := range d.Spec.VolumeLifecycleModes {
		if m != storagev1.VolumeLifecyclePersistent && m != storagev1.VolumeLifecycleEphemeral {
			errs = append(errs, field.NotSupported(path.Child("volumeLifecycleModes"), m,
				[]storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}))
		}
	}
	if p := d.Spec.NodeAllocatableUpdatePeriodSeconds; p != nil && *p < minUpdatePeriod {
		errs = append(errs, field.Invalid(path.Child("nodeAllocatableUpdatePeriodSeconds"), *p, fmt.Sprintf("must be greater than or equal to %d seconds", minUpdatePeriod)))
	}
	if s := d.Spec.ServiceAccountTokenInSecrets; s != nil && len(d.Spec.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(path.Child("serviceAccountTokenInSecrets"), *s, "serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	if old != nil {
		errs = append(errs, rule.Immutable(d.Spec.AttachRequired, old.Spec.AttachRequired, path.Child("attachedRequired"))...)
		errs = append(errs, rule.Immutable(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, path.Child("volumeLifecycleModes"))...)
	}
	return errs
}

func validateTokenRequests(requests []storagev1.TokenRequest, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, r := range requests {
		at := path.Index(i)
		if seen[r.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), r.Audience))
			continue
		}
		seen[r.Audience] = true
		switch s := ptr.Deref(r.ExpirationSeconds, minTokenSeconds); {
		case s < minTokenSeconds:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), s, "may not specify a duration less than 10 minutes"))
		case s > maxTokenSeconds:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), s, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	return errs
}

var _ = kind.Add(&Group, kind.Def[storagev1.CSINode]{
	Names:          kind.Names{Plural: "csinodes"},
	ReturnDeleted:  true,
	Scope:          kind.Cluster,
	NoGeneration:   true,
	RequireVersion: true,
	Validate:       validateCSINode,
	Columns: []kind.Column[storagev1.CSINode]{
		{Name: "Drivers", Type: "integer", Description: "The number of CSI drivers registered on the node.",
			Value: func(n *storagev1.CSINode, _ time.Time) any { return int64(len(n.Spec.Drivers)) }},
	},
})

// maxNodeID is the longest identity that a driver may give a node.
const maxNodeID = 256

func validateCSINode(n, old *storagev1.CSINode) field.ErrorList {
	path := field.NewPath("spec", "drivers")
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range n.Spec.Drivers {
		d, at := &n.Spec.Drivers[i], path.Index(i)
		errs = append(errs, validateNodeDriver(d, at)...)
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		seen[d.Name] = true
		if old != nil {
			errs = append(errs, validateDriverUpdate(d, old.Spec.Drivers, path)...)
		}
	}
	return errs
}

// validateDriverUpdate lets only the number of volumes change: a driver that is different registers anew.
func validateDriverUpdate(d *storagev1.CSINodeDriver, before []storagev1.CSINodeDriver, path *field.Path) field.ErrorList {
	i := slices.IndexFunc(before, func(o storagev1.CSINodeDriver) bool { return o.Name == d.Name })
	if i < 0 {
		return nil
	}
	now, was := *d, before[i]
	now.Allocatable, was.Allocatable = nil, nil
	return rule.Immutable(&now, &was, path)
}

func validateNodeDriver(d *storagev1.CSINodeDriver, path *field.Path) field.ErrorList {
	errs := validateDriverName(d.Name, path.Child("name"))
	switch id := path.Child("nodeID"); {
	case d.NodeID == "":
		errs = append(errs, field.Required(id, ""))
	case len(d.NodeID) > maxNodeID:
		errs = append(errs, field.Invalid(id, d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
	}
	if d.Allocatable != nil {
		errs = append(errs, rule.NonNegativePtr(d.Allocatable.Count, path.Child("allocatable", "count"))...)
	}
	for i, key := range d.TopologyKeys {
		if key == "" {
			errs = append(errs, field.Required(path, ""))
		}
		if slices.Contains(d.TopologyKeys[:i], key) {
			errs = append(errs, field.Duplicate(path, key))
		}
		errs = append(errs, rule.QualifiedName(key, path)...)
	}
	return errs
}

var _ = kind.Add(&Group, kind.Def[storagev1.CSIStorageCapacity]{
	Names:          kind.Names{Plural: "csistoragecapacities"},
	RequireVersion: true,
	Validate:       validateCapacity,
	Columns: []kind.Column[storagev1.CSIStorageCapacity]{
		{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
			Value: func(c *storagev1.CSIStorageCapacity, _ time.Time) any { return cell.Created(c.CreationTimestamp) }},
	},
	NoAge: true,
})

func validateCapacity(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := rule.Selector(c.NodeTopology, field.NewPath("nodeTopology"))
	errs = append(errs, rule.Subdomain(c.StorageClassName, field.NewPath("storageClassName"))...)
	if c.Capacity != nil && c.Capacity.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), c.Capacity.String(), "must be greater than or equal to 0"))
	}
	if old != nil {
		errs = append(errs, rule.Immutable(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology"))...)
		errs = append(errs, rule.Immutable(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
	}
	return errs
}
