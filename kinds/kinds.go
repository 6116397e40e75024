// Package kinds lists the groups of built-in kinds. Each group is a package below it, each kind a file there.
package kinds

import (
	apiextensionsdefinitions "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	apiregistrationdefinitions "k8s.io/kube-aggregator/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/admissionregistration"
	"github.com/yare-project/yare/kinds/apiextensions"
	"github.com/yare-project/yare/kinds/apiregistration"
	"github.com/yare-project/yare/kinds/apps"
	"github.com/yare-project/yare/kinds/authentication"
	"github.com/yare-project/yare/kinds/authorization"
	"github.com/yare-project/yare/kinds/autoscaling"
	"github.com/yare-project/yare/kinds/batch"
	"github.com/yare-project/yare/kinds/certificates"
	"github.com/yare-project/yare/kinds/coordination"
	"github.com/yare-project/yare/kinds/core"
	"github.com/yare-project/yare/kinds/discovery"
	_ "github.com/yare-project/yare/kinds/events" // adds the Event to the core group
	"github.com/yare-project/yare/kinds/flowcontrol"
	"github.com/yare-project/yare/kinds/networking"
	"github.com/yare-project/yare/kinds/node"
	"github.com/yare-project/yare/kinds/policy"
	"github.com/yare-project/yare/kinds/rbac"
	"github.com/yare-project/yare/kinds/resource"
	"github.com/yare-project/yare/kinds/scheduling"
	"github.com/yare-project/yare/kinds/storage"
	"github.com/yare-project/yare/kinds/yarescheduling"
)

// Groups returns every built-in group, in the order of Kubernetes' group priorities: where a short name is ambiguous, clients take the first.
func Groups() []*kind.Group {
	return []*kind.Group{
		&core.Group, &apiregistration.Group, &apps.Group, &authentication.Group, &authorization.Group, &autoscaling.Group, &batch.Group,
		&certificates.Group, &networking.Group, &policy.Group, &rbac.Group, &storage.Group, &admissionregistration.Group, &apiextensions.Group,
		&scheduling.Group, &coordination.Group, &node.Group, &discovery.Group, &flowcontrol.Group, &resource.Group,
		&yarescheduling.Group,
	}
}

// Definitions are the OpenAPI schemas of kinds whose Go types don't carry their documentation.
func Definitions() []func(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	return []func(common.ReferenceCallback) map[string]common.OpenAPIDefinition{
		apiextensionsdefinitions.GetOpenAPIDefinitions, apiregistrationdefinitions.GetOpenAPIDefinitions,
	}
}
