package verbs

// Count is how many objects there are now, in all namespaces.
func (r *Resource) Count() int {
	if r.table == nil {
		return 0
	}
	return r.table.Len()
}
