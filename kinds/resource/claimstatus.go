package resource

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/rule"
)

// validateClaimStatus keeps an allocation as it was made, and reserves only what is allocated and not being given back.
func validateClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	path, s := field.NewPath("status"), &c.Status
	reserved := path.Child("reservedFor")
	errs := each(s.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize,
		func(r *resourcev1.ResourceClaimConsumerReference) string { return string(r.UID) }, validateConsumer, reserved)
	if len(s.ReservedFor) > 0 && s.Allocation == nil {
		errs = append(errs, field.Forbidden(reserved, "may not be specified when `allocated` is not set"))
	}
	if c.DeletionTimestamp != nil && old != nil && addsConsumer(s.ReservedFor, old.Status.ReservedFor) {
		errs = append(errs, field.Forbidden(reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
	}
	switch allocation := path.Child("allocation"); {
	case s.Allocation == nil:
	case old != nil && old.Status.Allocation != nil:
		errs = append(errs, rule.Immutable(s.Allocation, old.Status.Allocation, allocation)...)
	default:
		errs = append(errs, validateAllocation(s.Allocation, requestsOf(&c.Spec.Devices), allocation)...)
	}
	return append(errs, validateDeviceStatuses(s, path.Child("devices"))...)
}

func validateConsumer(r *resourcev1.ResourceClaimConsumerReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	required := func(value, name string) {
		if value == "" {
			errs = append(errs, field.Required(path.Child(name), ""))
		}
	}
	required(r.Resource, "resource")
	required(r.Name, "name")
	required(string(r.UID), "uid")
	return errs
}

func addsConsumer(now, before []resourcev1.ResourceClaimConsumerReference) bool {
	had := map[resourcev1.ResourceClaimConsumerReference]bool{}
	for _, r := range before {
		had[r] = true
	}
	for _, r := range now {
		if !had[r] {
			return true
		}
	}
	return false
}

func validateAllocation(a *resourcev1.AllocationResult, names requests, path *field.Path) field.ErrorList {
	devices := path.Child("devices")
	errs := each(a.Devices.Results, resourcev1.AllocationResultsMaxSize, nil, func(r *resourcev1.DeviceRequestAllocationResult, at *field.Path) field.ErrorList {
		errs := names.check(r.Request, at.Child("request"))
		errs = append(errs, validateDriver(r.Driver, at.Child("driver"))...)
		errs = append(errs, validatePool(r.Pool, at.Child("pool"))...)
		errs = append(errs, rule.Label(r.Device, at.Child("device"))...)
		if r.ShareID != nil {
			errs = append(errs, validateShare(string(*r.ShareID), at.Child("shareID"))...)
		}
		return append(errs, validateBinding(r.BindingConditions, r.BindingFailureConditions, at)...)
	}, devices.Child("results"))
	if a.NodeSelector != nil {
		errs = append(errs, core.ValidateNodeSelector(a.NodeSelector, path.Child("nodeSelector"))...)
	}
	return append(errs, each(a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, nil, func(k *resourcev1.DeviceAllocationConfiguration, at *field.Path) field.ErrorList {
		errs := rule.RequiredOneOf(k.Source, at.Child("source"), "", resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass)
		if k.Source == resourcev1.AllocationConfigSourceClaim {
			errs = append(errs, names.checkAll(k.Requests, at.Child("requests"))...)
		}
		return append(errs, validateConfiguration(&k.DeviceConfiguration, at)...)
	}, devices.Child("config"))...)
}

// dropDeallocated forgets what drivers told of devices that the claim had and gives back.
func dropDeallocated(c, old *resourcev1.ResourceClaim) {
	gone := allocated(&old.Status)
	for id := range allocated(&c.Status) {
		delete(gone, id)
	}
	c.Status.Devices = slices.DeleteFunc(c.Status.Devices, func(d resourcev1.AllocatedDeviceStatus) bool { return gone[idOf(&d)] })
	if len(c.Status.Devices) == 0 {
		c.Status.Devices = nil
	}
}

// validateShare checks the id of a device's share.
func validateShare(id string, path *field.Path) field.ErrorList {
	if err := uuid.Validate(id); err != nil {
		return field.ErrorList{field.Invalid(path, id, fmt.Sprintf("error validating uid: %v", err))}
	}
	if len(id) != 36 || id != strings.ToLower(id) {
		return field.ErrorList{field.Invalid(path, id, "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters")}
	}
	return nil
}

type deviceID struct{ driver, pool, device, share string }

func idOf(d *resourcev1.AllocatedDeviceStatus) deviceID {
	return deviceID{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
}

func allocated(s *resourcev1.ResourceClaimStatus) map[deviceID]bool {
	out := map[deviceID]bool{}
	if s.Allocation != nil {
		for _, r := range s.Allocation.Devices.Results {
			out[deviceID{r.Driver, r.Pool, r.Device, string(ptr.Deref(r.ShareID, ""))}] = true
		}
	}
	return out
}

// validateDeviceStatuses lets a driver tell only of devices that are allocated.
func validateDeviceStatuses(s *resourcev1.ResourceClaimStatus, path *field.Path) field.ErrorList {
	allocated := allocated(s)
	var errs field.ErrorList
	seen := map[deviceID]bool{}
	for i := range s.Devices {
		d, at := &s.Devices[i], path.Index(i)
		id := idOf(d)
		if !allocated[id] {
			errs = append(errs, field.Invalid(at, id.driver+"/"+id.pool+"/"+id.device, "must be an allocated device in the claim"))
		}
		if seen[id] {
			errs = append(errs, field.Duplicate(at, id.driver+"/"+id.pool+"/"+id.device))
		}
		seen[id] = true
		errs = append(errs, validateDeviceStatus(d, at)...)
	}
	return errs
}

const maxConditions = 8

func validateDeviceStatus(d *resourcev1.AllocatedDeviceStatus, path *field.Path) field.ErrorList {
	errs := validateDriver(d.Driver, path.Child("driver"))
	errs = append(errs, validatePool(d.Pool, path.Child("pool"))...)
	errs = append(errs, rule.Label(d.Device, path.Child("device"))...)
	if d.ShareID != nil {
		errs = append(errs, validateShare(*d.ShareID, path.Child("shareID"))...)
	}
	if n := len(d.Conditions); n > maxConditions {
		errs = append(errs, field.TooMany(path.Child("conditions"), n, maxConditions))
	}
	errs = append(errs, metav1validation.ValidateConditions(d.Conditions, path.Child("conditions"))...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		switch data := path.Child("data"); {
		case len(d.Data.Raw) > resourcev1.AllocatedDeviceStatusDataMaxLength:
			errs = append(errs, field.TooLong(data, "", resourcev1.AllocatedDeviceStatusDataMaxLength))
		case !json.Valid(d.Data.Raw):
			errs = append(errs, field.Invalid(data, "<value omitted>", "must be valid JSON"))
		}
	}
	if n := d.NetworkData; n != nil {
		network := path.Child("networkData")
		if len(n.InterfaceName) > resourcev1.NetworkDeviceDataInterfaceNameMaxLength {
			errs = append(errs, field.TooLong(network.Child("interfaceName"), "", resourcev1.NetworkDeviceDataInterfaceNameMaxLength))
		}
		if len(n.HardwareAddress) > resourcev1.NetworkDeviceDataHardwareAddressMaxLength {
			errs = append(errs, field.TooLong(network.Child("hardwareAddress"), "", resourcev1.NetworkDeviceDataHardwareAddressMaxLength))
		}
		errs = append(errs, each(n.IPs, 16, text, func(ip *string, at *field.Path) field.ErrorList { return validation.IsValidInterfaceAddress(at, *ip) }, network.Child("ips"))...)
	}
	return errs
}
