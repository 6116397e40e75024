package access

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// nodeResources are the resources whose objects belong to some nodes and not to others.
var nodeResources = map[schema.GroupResource]func(node string, a authorizer.Attributes) verdict{
	{Resource: "secrets"}:                                  func(_ string, a authorizer.Attributes) verdict { return readOne(secrets, a) },
	{Resource: "configmaps"}:                               func(_ string, a authorizer.Attributes) verdict { return readOne(configMaps, a) },
	{Resource: "persistentvolumeclaims"}:                   judgeClaim,
	{Resource: "persistentvolumes"}:                        func(_ string, a authorizer.Attributes) verdict { return getOne(volumes, a) },
	{Group: draGroup, Resource: "resourceclaims"}:          func(_ string, a authorizer.Attributes) verdict { return getOne(resourceClaims, a) },
	{Group: storageGroup, Resource: "volumeattachments"}:   func(_ string, a authorizer.Attributes) verdict { return getOne(attachments, a) },
	{Resource: "serviceaccounts"}:                          judgeServiceAccount,
	{Group: leaseGroup, Resource: "leases"}:                judgeLease,
	{Group: storageGroup, Resource: "csinodes"}:            judgeCSINode,
	{Group: draGroup, Resource: "resourceslices"}:          judgeResourceSlice,
	{Resource: "nodes"}:                                    judgeNode,
	{Resource: "pods"}:                                     judgePod,
	{Group: certGroup, Resource: "podcertificaterequests"}: func(string, authorizer.Attributes) verdict { return verdict{} },
}

// readOne allows reading one object of a namespace by name, also as a list or watch of that one.
func readOne(k kindOf, a authorizer.Attributes) verdict {
	switch {
	case !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()):
		return refuse("can only read resources of this type")
	case a.GetSubresource() != "":
		return refuse("cannot read subresource")
	case a.GetNamespace() == "":
		return refuse("can only read namespaced object of this type")
	}
	return ifRelated(k, a)
}

func getOne(k kindOf, a authorizer.Attributes) verdict {
	switch {
	case a.GetVerb() != "get":
		return refuse("can only get individual resources of this type")
	case a.GetSubresource() != "":
		return refuse("cannot get subresource")
	}
	return ifRelated(k, a)
}

func judgeClaim(_ string, a authorizer.Attributes) verdict {
	if a.GetSubresource() != "status" {
		return getOne(claims, a)
	}
	if v := a.GetVerb(); v != "update" && v != "patch" {
		return refuse("can only get/update/patch this type")
	}
	return ifRelated(claims, a)
}

func judgeServiceAccount(_ string, a authorizer.Attributes) verdict {
	switch {
	case a.GetVerb() == "get" && a.GetSubresource() == "":
		return readOne(serviceAccounts, a)
	case a.GetVerb() != "create" || a.GetName() == "":
		return refuse("can only create tokens for individual service accounts")
	case a.GetSubresource() != "token":
		return refuse("can only create token subresource of serviceaccount")
	}
	return ifRelated(serviceAccounts, a)
}

// ownVerbs are what a node may do with the object that has its name.
var ownVerbs = []string{"get", "create", "update", "patch", "delete"}

// ownObject allows it. On create the name is not known yet: NodeRestriction looks.
func ownObject(what, node string, a authorizer.Attributes) verdict {
	if a.GetVerb() != "create" && a.GetName() != node {
		return refuse("can only access %s with the same name as the requesting node", what)
	}
	return grant()
}

func judgeLease(node string, a authorizer.Attributes) verdict {
	switch {
	case !slices.Contains(ownVerbs, a.GetVerb()):
		return refuse("can only get, create, update, patch, or delete a node lease")
	case a.GetNamespace() != corev1.NamespaceNodeLease:
		return refuse("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	return ownObject("node lease", node, a)
}

func judgeCSINode(node string, a authorizer.Attributes) verdict {
	switch {
	case !slices.Contains(ownVerbs, a.GetVerb()):
		return refuse("can only get, create, update, patch, or delete a CSINode")
	case a.GetSubresource() != "":
		return refuse("cannot authorize CSINode subresources")
	}
	return ownObject("CSINode", node, a)
}

func judgeResourceSlice(node string, a authorizer.Attributes) verdict {
	if a.GetSubresource() != "" {
		return refuse("cannot authorize ResourceSlice subresources")
	}
	switch a.GetVerb() {
	case "create":
		return grant()
	case "get", "update", "patch", "delete":
		return ifRelated(slicesOf, a)
	case "watch", "list", "deletecollection":
		if selects(a, "spec.nodeName", node) {
			return grant()
		}
		return refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
	}
	return refuse("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection")
}

func judgeNode(node string, a authorizer.Attributes) verdict {
	switch a.GetSubresource() + "/" + a.GetVerb() {
	case "/create", "/update", "/patch", "status/update", "status/patch":
		return grant()
	case "/get", "/list", "/watch":
		switch a.GetName() {
		case node:
			return grant()
		case "":
			return refuse("node '%s' cannot read all nodes, only its own Node object", node)
		}
		return refuse("node '%s' cannot read '%s', only its own Node object", node, a.GetName())
	}
	return verdict{}
}

func judgePod(node string, a authorizer.Attributes) verdict {
	switch a.GetSubresource() + "/" + a.GetVerb() {
	case "/get":
		return getOne(pods, a)
	case "/list", "/watch":
		switch {
		case selects(a, "spec.nodeName", node):
			return grant()
		case a.GetName() != "":
			return ifRelated(pods, a)
		}
		return refuse("can only list/watch pods with spec.nodeName field selector")
	case "/create", "/delete", "status/update", "status/patch", "eviction/create":
		return grant()
	}
	return verdict{}
}
