package apply

// Stats are how many applications and objects the engine manages, and how
// many operations run or wait.
func (e *Engine) Stats() (apps, objects, operations int) {
	e.mu.RLock()
	apps, objects = len(e.apps), len(e.objects)
	e.mu.RUnlock()
	return apps, objects, len(e.Inventory.OpenOperations())
}
