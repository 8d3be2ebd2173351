"""Access: who may connect, as whom, and what each may do. Everything about trust at the listeners is in this folder."""
