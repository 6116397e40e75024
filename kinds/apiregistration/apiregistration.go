// Package apiregistration declares the kinds of the group apiregistration.k8s.io: the APIService, which says who serves a group's version.
package apiregistration

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/rule"
)

// Group is apiregistration.k8s.io.
var Group = kind.Group{Name: "apiregistration.k8s.io", Versions: []string{"v1"}, AnyFinalizer: true, AddToScheme: []func(*runtime.Scheme) error{apiregistrationv1.AddToScheme}}

type service = apiregistrationv1.APIService

var _ = kind.Add(&Group, kind.Def[service]{
	Names:          kind.Names{Plural: "apiservices", Kind: "APIService", Categories: []string{"api-extensions"}},
	Scope:          kind.Cluster,
	RequireVersion: true,
	NoGeneration:   true,
	ValidateName:   rule.PathSegmentName,
	Default: func(s *service) {
		if s.Spec.Service != nil && s.Spec.Service.Port == nil {
			s.Spec.Service.Port = ptr.To[int32](443)
		}
	},
	Prepare:        prepare,
	Validate:       validate,
	ValidateStatus: validateStatus,
	Columns: []kind.Column[service]{
		{Name: "Service", Description: "The service that serves the version, or Local.", Value: func(s *service, _ time.Time) any {
			if s.Spec.Service == nil {
				return "Local"
			}
			return s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
		}},
		{Name: "Available", Description: "Whether the version can be reached.", Value: func(s *service, _ time.Time) any { return available(s) }},
	},
})

func available(s *service) string {
	for _, c := range s.Status.Conditions {
		if c.Type != apiregistrationv1.Available {
			continue
		}
		if c.Status != apiregistrationv1.ConditionTrue && c.Reason != "" {
			return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
		return string(c.Status)
	}
	return string(apiregistrationv1.ConditionUnknown)
}

// prepare marks what this server serves itself as available from the start.
func prepare(s, old *service) {
	if old != nil || s.Spec.Service != nil {
		return
	}
	s.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, LastTransitionTime: s.CreationTimestamp,
		Reason: "Local", Message: "Local APIServices are always available",
	}}
}

// The highest priorities.
const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

func validate(s, _ *service) field.ErrorList {
	path, spec := field.NewPath("spec"), &s.Spec
	var errs field.ErrorList
	want := spec.Version + "." + spec.Group
	for _, given := range []struct{ field, name string }{{"name", s.Name}, {"generateName", s.GenerateName}} {
		if given.name != "" && given.name != want {
			errs = append(errs, field.Invalid(field.NewPath("metadata", given.field), given.name, fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want)))
		}
	}
	switch {
	case spec.Group != "":
		errs = append(errs, rule.Subdomain(spec.Group, path.Child("group"))...)
	case spec.Version != "v1":
		errs = append(errs, field.Required(path.Child("group"), "only v1 may have an empty group and it better be legacy kube"))
	}
	errs = append(errs, rule.Invalid(spec.Version, path.Child("version"), validation.IsDNS1035Label(spec.Version))...)
	if n := spec.GroupPriorityMinimum; n <= 0 || n > maxGroupPriority {
		errs = append(errs, field.Invalid(path.Child("groupPriorityMinimum"), n, fmt.Sprintf("must be positive and less than %d", maxGroupPriority)))
	}
	if n := spec.VersionPriority; n <= 0 || n > maxVersionPriority {
		errs = append(errs, field.Invalid(path.Child("versionPriority"), n, fmt.Sprintf("must be positive and less than %d", maxVersionPriority)))
	}
	if spec.Service == nil {
		return append(errs, validateLocal(spec, path)...)
	}
	return append(errs, validateRemote(spec, path)...)
}

func validateLocal(spec *apiregistrationv1.APIServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := len(spec.CABundle); n > 0 {
		errs = append(errs, field.Invalid(path.Child("caBundle"), fmt.Sprintf("%d bytes", n), "local APIServices may not have a caBundle"))
	}
	if spec.InsecureSkipTLSVerify {
		errs = append(errs, field.Invalid(path.Child("insecureSkipTLSVerify"), true, "local APIServices may not have insecureSkipTLSVerify"))
	}
	return errs
}

func validateRemote(spec *apiregistrationv1.APIServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("service")
	if spec.Service.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	}
	if spec.Service.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if port := ptr.Deref(spec.Service.Port, 443); len(validation.IsValidPortNum(int(port))) > 0 {
		errs = append(errs, field.Invalid(at.Child("port"), port, "port is not valid: "+strings.Join(validation.IsValidPortNum(int(port)), ", ")))
	}
	if spec.InsecureSkipTLSVerify && len(spec.CABundle) > 0 {
		errs = append(errs, field.Invalid(path.Child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"))
	}
	return errs
}

func validateStatus(s, _ *service) field.ErrorList {
	var errs field.ErrorList
	for i, c := range s.Status.Conditions {
		errs = append(errs, rule.InOrder(c.Status, field.NewPath("status", "conditions").Index(i).Child("status"),
			apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown)...)
	}
	return errs
}
